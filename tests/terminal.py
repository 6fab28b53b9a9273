#!/usr/bin/env python3
"""What a person sees at a terminal.

terminal.py [--columns N] [--background] [--when TEXT --then SHELL] COMMAND...: runs the command at a pseudo terminal,
as a shell would (or as a job in the background), and prints the screen as it is at the end, scrolled lines first;
before it, each different form that a line took while it was the last one, behind "> ". A line that was longer than
the terminal has "WRAPPED " before it. 1.5 seconds after the command has written TEXT, the line SHELL is run. Exit
status: the command's.
"""
import argparse, codecs, fcntl, os, pty, re, select, signal, struct, subprocess, sys, termios, time

class Screen:
    """Printing characters, CR, LF, and the sequences for erasing, for moving up and for colours."""
    def __init__(self, columns):
        self.columns, self.lines, self.row, self.col, self.wrapped, self.forms = columns, [""], 0, 0, set(), []

    def form(self):
        line = self.lines[self.row].rstrip()
        if line and (not self.forms or self.forms[-1] != line): self.forms.append(line)

    def put(self, ch):
        if self.col >= self.columns:                      # the terminal goes on in the next line
            self.wrapped.add(self.row)
            self.down()
            self.col = 0
        line = self.lines[self.row].ljust(self.col)
        self.lines[self.row] = line[:self.col] + ch + line[self.col + 1:]
        self.col += 1

    def down(self):
        self.row += 1
        while len(self.lines) <= self.row: self.lines.append("")

    def feed(self, text):
        text = text.replace("\0", "")                    # Open MPI 5.0 ends a text with it; terminals ignore it
        for part in re.split(r"(\033\[[0-9;]*[A-Za-z]|[\r\n])", text):
            if part == "\r": self.form(); self.col = 0
            elif part == "\n": self.down()
            elif part.startswith("\033["):
                n, what = part[2:-1], part[-1]
                if what == "K": self.lines[self.row] = self.lines[self.row][:self.col]
                elif what == "J": self.lines[self.row:] = [self.lines[self.row][:self.col]]
                elif what == "A": self.row = max(0, self.row - int(n or 1))
                elif what != "m": sys.exit("unexpected sequence %r" % part)
            else:
                for ch in part: self.put(ch)

def child(args):
    if not args.background: os.execvp(args.command[0], args.command)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    pid = os.fork()                                       # the session's leader stays in the foreground, like a shell
    if pid == 0:
        os.setpgid(0, 0)
        os.execvp(args.command[0], args.command)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 255)

def main():
    p = argparse.ArgumentParser()
    p.add_argument("--columns", type=int, default=80)
    p.add_argument("--background", action="store_true")
    p.add_argument("--when")
    p.add_argument("--then")
    p.add_argument("command", nargs=argparse.REMAINDER)
    args = p.parse_args()
    gate, go = os.pipe()                                  # the command starts when the terminal has its size
    pid, fd = pty.fork()
    if pid == 0:
        os.close(go)
        os.read(gate, 1)
        os.close(gate)
        child(args)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, args.columns, 0, 0))
    os.close(go)
    screen, decoder, until = Screen(args.columns), codecs.getincrementaldecoder("utf-8")("replace"), time.time() + 60
    due = None
    while time.time() < until:
        if due and time.time() >= due: subprocess.Popen(args.then, shell=True); due = None
        if not select.select([fd], [], [], 0.1)[0]: continue
        try: chunk = os.read(fd, 65536)
        except OSError: break
        if not chunk: break
        text = decoder.decode(chunk)
        if args.when and args.when in text: args.when, due = None, time.time() + 1.5
        screen.feed(text)
    for line in screen.forms: print(">", line)
    if screen.lines[-1] == "": screen.lines.pop()         # where the next prompt goes
    for i, line in enumerate(screen.lines):
        if i - 1 not in screen.wrapped: print("WRAPPED " if i in screen.wrapped else "", end="")
        print(line, end="" if i in screen.wrapped else "\n")
    if time.time() >= until: os.killpg(pid, signal.SIGKILL)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 255)

main()

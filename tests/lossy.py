#!/usr/bin/env python3
"""lossy.py PID PID NAME: joins two network namespaces, those of these processes, by a network that delays each frame by
3 to 7 ms, so that some overtake others, and loses one in fifty. It is called NAME in both, and is gone when this ends.
On SIGTERM it prints how many frames were carried and how many lost. Needs root. It stands in for tc's netem, which
many kernels lack."""
import ctypes, fcntl, heapq, os, random, select, signal, struct, sys, time

TUNSETIFF, IFF_TAP, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 2, 0x1000, 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def end_in(pid, name):
    """The descriptor from which frames are read that leave the namespace by this device, and vice versa."""
    with open("/proc/%s/ns/net" % pid) as space:
        if libc.setns(space.fileno(), CLONE_NEWNET):
            sys.exit("lossy.py: setns: " + os.strerror(ctypes.get_errno()))
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return fd


def carry(one, other):
    draw, due, carried, lost = random.Random(1), [], 0, 0
    while True:
        ready, _, _ = select.select([one, other], [], [], max(0, due[0][0] - time.monotonic()) if due else None)
        for fd in ready:
            frame = os.read(fd, 65536)
            if draw.random() < 0.02:
                lost += 1
                continue
            carried += 1
            at = time.monotonic() + draw.uniform(0.003, 0.007)
            heapq.heappush(due, (at, carried, other if fd == one else one, frame))
        while due and due[0][0] <= time.monotonic():
            _, _, to, frame = heapq.heappop(due)
            try:
                os.write(to, frame)
            except OSError:
                pass                                      # the device is down, or nobody has room
        yield carried, lost


def main():
    one, other = (end_in(pid, sys.argv[3]) for pid in sys.argv[1:3])
    print("ready", flush=True)
    carried, lost = 0, 0

    def tell(*_):
        print("%d carried, %d lost" % (carried, lost), flush=True)
        os._exit(0)
    signal.signal(signal.SIGTERM, tell)
    for carried, lost in carry(one, other):
        pass


main()

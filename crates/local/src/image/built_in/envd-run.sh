#!/bin/sh
# Starts the daemon of sandboxes in the container that this is run in, for its postStart hook.

usage() {
    echo "usage: envd-run.sh [--nolog] [--help] [-- COMMAND [ARGUMENT]...]"
    echo
    echo "Makes the user 'user' if there is none, starts \$ENVD_DIR/envd in the background, and then runs COMMAND."
    echo "  --nolog  drop what the daemon says instead of adding it to the container's log"
}

log=/proc/1/fd/1
while [ $# -gt 0 ]; do
    case "$1" in
    --nolog) log=/dev/null ;;
    --help)
        usage
        exit 0
        ;;
    --)
        shift
        break
        ;;
    *)
        echo "Error: unknown argument '$1'" >&2
        usage >&2
        exit 1
        ;;
    esac
    shift
done
if [ -z "${ENVD_DIR:-}" ]; then
    echo "Error: ENVD_DIR environment variable is not defined" >&2
    exit 1
fi

has_user() {
    grep -q "^user:" /etc/passwd 2>/dev/null
}

has_group() {
    grep -q "^$1:" /etc/group 2>/dev/null
}

# a file by hand may end within its last line
add_line() {
    if [ -s "$1" ] && [ -n "$(tail -c 1 "$1")" ]; then
        echo >>"$1"
    fi
    echo "$2" >>"$1"
}

# the first number from 1000 up that neither a user nor a group has
free_id() {
    id=1000
    while grep -q "^[^:]*:[^:]*:$id:" /etc/passwd /etc/group 2>/dev/null; do
        id=$((id + 1))
    done
    echo "$id"
}

add_user() {
    shell=/bin/sh
    if [ -x /bin/bash ]; then
        shell=/bin/bash
    fi
    useradd -m -s "$shell" user >/dev/null 2>&1
    has_user || adduser -D -s "$shell" user >/dev/null 2>&1
    has_user && return
    id=$(free_id)
    add_line /etc/passwd "user:x:$id:$id::/home/user:$shell"
    has_group user || add_line /etc/group "user:x:$id:"
}

add_rights() {
    for group in sudo wheel; do
        if has_group "$group"; then
            usermod -a -G "$group" user >/dev/null 2>&1 || addgroup user "$group" >/dev/null 2>&1
        fi
    done
    passwd -d user >/dev/null 2>&1
    rule="user ALL=(ALL) NOPASSWD: ALL"
    if [ -d /etc/sudoers.d ]; then
        echo "$rule" >/etc/sudoers.d/user && chmod 440 /etc/sudoers.d/user
    elif [ -f /etc/sudoers ] && ! grep -qxF "$rule" /etc/sudoers; then
        add_line /etc/sudoers "$rule"
    fi
}

{
    has_user || add_user
    mkdir -p /home/user && chown user /home/user && chmod 777 /home/user && add_rights && has_user
} 2>/dev/null || echo "Warning: the user 'user' could not be made as it should be" >&2

# a container that is not root's may not write where its first process does
if ! [ -w "$log" ]; then
    log=/dev/null
fi
"$ENVD_DIR/envd" -isnotfc >"$log" 2>&1 </dev/null &

if [ $# -gt 0 ]; then
    exec "$@"
fi

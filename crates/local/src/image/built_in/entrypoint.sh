#!/bin/sh
# Puts the daemon of sandboxes where the first container of the pod looks for it, and stays, as a native sidecar must.

fail() {
    echo "Error: $1" >&2
    exit 1
}

if [ -z "${ENVD_DIR:-}" ]; then
    fail "ENVD_DIR environment variable is not defined"
fi
case $0 in
*/*) here=${0%/*} ;;
*) here=. ;;
esac
mkdir -p "$ENVD_DIR" || fail "cannot make $ENVD_DIR"
for name in envd-run.sh envd sandbox-runtime-storage; do
    # moved into place: a program that runs cannot be written over, and nobody may see half of one
    new="$ENVD_DIR/.$name.new"
    cp "$here/$name" "$new" && chmod 755 "$new" && mv -f "$new" "$ENVD_DIR/$name" ||
        fail "cannot put $name into $ENVD_DIR"
done
echo "Files successfully copied to $ENVD_DIR"

trap 'exit 0' TERM INT
while :; do
    sleep 2147483647 &
    wait $!
done

#!/bin/sh
# Removes old archives: rotate.sh FOLDER KEEP
# Archives are named NAME-YYYY-MM-DD.tar.gz. Of each NAME, the KEEP newest ones stay.
set -eu

here=$(dirname "$0")
. "$here/lib/archives.sh"

if [ $# -ne 2 ] || ! is_number "$2"; then
    echo "usage: rotate.sh FOLDER KEEP" >&2
    exit 2
fi

for name in $(names "$1"); do
    remove_old "$1" "$name" "$2"
done

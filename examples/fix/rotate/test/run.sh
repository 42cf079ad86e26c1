#!/bin/sh
# Runs the tests; the output is in the Test Anything Protocol.
here=$(cd "$(dirname "$0")/.." && pwd)
export LC_ALL=C
count=0
failed=0

# given FILE...: a folder with these empty files.
given() {
    folder=$(mktemp -d)
    for file in "$@"; do
        : > "$folder/$file"
    done
}

# check NAME EXPECTED: the folder has these files now, in one line, with "|" between them.
check() {
    count=$((count + 1))
    there=$(ls "$folder" | tr '\n' '|')
    if [ "$there" = "$2" ]; then
        echo "ok $count - $1"
    else
        echo "not ok $count - $1"
        echo "# expected: $2"
        echo "# there is: $there"
        failed=1
    fi
    rm -r "$folder"
}

given a-2026-01-01.tar.gz a-2026-02-01.tar.gz a-2025-12-31.tar.gz
"$here/rotate.sh" "$folder" 2 > /dev/null
check "the newest stay" "a-2026-01-01.tar.gz|a-2026-02-01.tar.gz|"

given a-2026-01-01.tar.gz b-2026-01-01.tar.gz b-2026-01-02.tar.gz notes.txt
"$here/rotate.sh" "$folder" 1 > /dev/null
check "names are counted apart, and other files stay" "a-2026-01-01.tar.gz|b-2026-01-02.tar.gz|notes.txt|"

given "my photos-2026-01-01.tar.gz" "my photos-2026-01-02.tar.gz" "my-2026-01-01.tar.gz"
"$here/rotate.sh" "$folder" 1 > /dev/null
check "a name may have spaces" "my photos-2026-01-02.tar.gz|my-2026-01-01.tar.gz|"

given "a.b-2026-01-01.tar.gz" "axb-2026-01-02.tar.gz"
"$here/rotate.sh" "$folder" 1 > /dev/null
check "a dot in a name is a dot" "a.b-2026-01-01.tar.gz|axb-2026-01-02.tar.gz|"

given a-2026-01-01.tar.gz
"$here/rotate.sh" "$folder" all > /dev/null 2>&1
check "a wrong number changes nothing" "a-2026-01-01.tar.gz|"

echo "1..$count"
exit $failed

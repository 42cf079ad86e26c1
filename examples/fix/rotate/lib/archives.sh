# Functions for archives that are named NAME-YYYY-MM-DD.tar.gz.

DATE='[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]'

# is_number TEXT
is_number() {
    case $1 in
    '' | *[!0-9]*) return 1 ;;
    esac
}

# names FOLDER: the names of which there are archives, one a line.
names() {
    ls "$1" | sed -n "s/-$DATE\.tar\.gz\$//p" | sort -u
}

# remove_old FOLDER NAME KEEP: remove all archives of a name but the newest, and say which.
remove_old() {
    archives "$1" "$2" | sort -r | tail -n +"$(($3 + 1))" | while read -r archive; do
        rm "$1/$archive"
        echo "removed $archive"
    done
}

# archives FOLDER NAME: the archives of a name, one a line.
archives() {
    ls "$1" | grep -- "^$2-$DATE\.tar\.gz\$"
}

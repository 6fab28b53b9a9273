# Sourced by the scripts that start many Python programs with torch, which to import takes a second each: it is imported
# once, by forks.py, whose children they are.
# forks_begin MODULE...: in the working directory; forks_end: at the end of the script
forks_begin() {
    mkfifo ask answer
    /usr/bin/python3 "$here/forks.py" "$@" <ask >answer 2>forks.err &
    exec 3>ask 4<answer
    read -r forks_ready <&4 || note <forks.err
}
forks_end() { exec 3>&- 4<&-; wait; }
# forked OUT SCRIPT ARGUMENT...: as python3 SCRIPT ARGUMENT... >OUT 2>&1
forked() {
    printf '%s\n' "$@" >args
    [ "${forks_ready:-}" = ready ] || return 99
    echo go >&3
    read -r forks_status <&4 || forks_ready= forks_status=99
    return "$forks_status"
}

# The repository's own environment: makes .venv, and keeps what is installed in it equal to the sources.
#
# Sourced by scripts/start and scripts/test. Sets `root`, `venv` and `python` (the
# environment's), and defines `prepare_environment`. Needs Python 3.11 or later with
# venv; PYTHON names another interpreter than the first that fits. All it says goes
# to stderr, since stdout belongs to the program that is started.

root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=$root/.venv
python=$venv/bin/python

# What .venv holds, each file written after the step it tells of has ended well:
made=$venv/ahpd-made                 # where it was made: scripts in it name that path
requirements=$venv/ahpd-requirements # digest of pyproject.toml, and the extra installed
sources=$venv/ahpd-sources           # digest of the sources that the installed wheel holds
backend=$venv/ahpd-build             # what pyproject.toml needs for a build, apart from the rest

LOCK_WAIT_S=900

# A link to a script may have another name and stand elsewhere.
script=$(readlink -f -- "$0")

say() { printf 'scripts/%s: %s\n' "${script##*/}" "$*" >&2; }

give_up() {
    say "$*"
    exit 2
}

# Whether $1 runs and is Python 3.11 or later.
is_python() { "$1" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# What PYTHON names is told when it is wrong before anything else is waited for.
check_named_python() {
    [ -z "${PYTHON:-}" ] || is_python "$PYTHON" ||
        give_up "PYTHON=$PYTHON is not Python 3.11 or later"
}

# Prints the interpreter to make the environment with.
find_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        echo "$PYTHON"
        return
    fi
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 python; do
        if is_python "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    give_up "needs Python 3.11 or later; found none (PYTHON=/path/to/python names one)"
}

# Which Python an interpreter is, whatever environment it is run from.
identity() { "$1" -I -c 'import sys; print(sys.version, sys.base_prefix)'; }

# The environment is there, was made at this place, and by the Python asked for.
is_made() {
    [ -f "$made" ] && [ "$(cat "$made")" = "$venv" ] && is_python "$python" || return 1
    [ -z "${PYTHON:-}" ] || [ "$(identity "$PYTHON" 2>/dev/null)" = "$(identity "$python")" ]
}

digest_of_sources() { "$python" -I "$root/scripts/clean_copy.py" "$root" "$@"; }

digest_of_requirements() {
    "$python" -I -c 'import hashlib, sys
print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$1/pyproject.toml"
}

# What pyproject.toml names is installed, with the extra $1 when it is not empty.
has_requirements() {
    local digest extra
    [ -f "$requirements" ] && read -r digest extra <"$requirements" || return 1
    [ "$digest" = "$(digest_of_requirements "$root")" ] && { [ -z "$1" ] || [ "$extra" = "$1" ]; }
}

is_fresh() {
    is_made && has_requirements "$1" && [ -f "$sources" ] &&
        [ "$(cat "$sources")" = "$(digest_of_sources)" ]
}

pip_quietly() {
    "$python" -I -m pip --quiet --disable-pip-version-check "$@" >&2
}

make_environment() {
    local base
    base=$(find_python)
    if [ -e "$venv" ]; then
        say "making .venv anew with $("$base" -I -V): it was not made here, not finished, or by another Python"
    else
        say "making .venv with $("$base" -I -V)"
    fi
    "$base" -I -m venv --clear "$venv" >&2 ||
        give_up "$base could not make .venv (on Debian and Ubuntu the package python3-venv is needed)"
    echo "$venv" >"$made"
}

# Installs the sources as a user gets them: as a wheel, built from a clean copy.
install_sources() (
    extra=$1
    work=$(mktemp -d)
    trap 'rm -rf -- "$work"' EXIT
    rm -f -- "$sources"
    mkdir "$work/copy"
    digest=$(digest_of_sources "$work/copy")
    wanted=$(digest_of_requirements "$work/copy")

    # The build's own needs are kept, so that a change of the sources alone asks no registry.
    if ! has_requirements "$extra"; then
        rm -f -- "$requirements"
        rm -rf -- "$backend"
        say "installing what pyproject.toml names (a minute, the first time)"
        "$python" -I -c 'import sys, tomllib
print(*tomllib.load(open(sys.argv[1], "rb"))["build-system"]["requires"], sep="\n")' \
            "$work/copy/pyproject.toml" >"$work/build-requirements"
        pip_quietly install --target "$backend" -r "$work/build-requirements"
    fi
    PYTHONPATH=$backend pip_quietly wheel --no-deps --no-build-isolation \
        --wheel-dir "$work/wheel" "$work/copy"
    set -- "$work/wheel/"*.whl
    pip_quietly install --no-deps --force-reinstall "$1"
    if ! [ -f "$requirements" ]; then
        pip_quietly install "$1${extra:+[$extra]}"
        echo "$wanted $extra" >"$requirements"
    fi
    echo "$digest" >"$sources"
)

# lock shared|exclusive: while any run holds the environment shared, none changes it.
# On descriptor 9, the repository's folder itself: nothing is left behind. Without
# flock (macOS) two runs at once must not both find the sources changed.
lock() {
    command -v flock >/dev/null || return 0
    flock --nonblock "--$1" 9 && return
    say "waiting for another run that uses .venv"
    flock --timeout "$LOCK_WAIT_S" "--$1" 9 ||
        give_up "another run has used .venv for $LOCK_WAIT_S s; try again when it has ended"
}

# prepare_environment [EXTRA]: returns with the sources installed and the environment
# held shared on descriptor 9. Close 9 for whatever should not hold it.
prepare_environment() {
    local extra=${1:-}
    check_named_python
    exec 9<"$root"
    lock shared
    is_fresh "$extra" && return
    lock exclusive
    if ! is_fresh "$extra"; then
        is_made || make_environment
        # Not behind `||` or `if`: there bash would run on after a step that failed.
        install_sources "$extra"
    fi
    lock shared
}

#!/bin/sh
# Makes the small guest of the tests from Debian's packages: a kernel and an initial file system, as an OS definition
# in tests/.cache/guest. Nothing is installed; where all is there and as new as this directory, nothing is done.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=$(dirname "$here")/.cache/guest
stamp=$(cat "$here/build.sh" "$here/init" "$here/record" | sha256sum | cut -d' ' -f1)

mkdir -p "$(dirname "$cache")"
exec 9>"$cache.lock"
flock 9
[ "$(cat "$cache/stamp" 2>/dev/null)" = "$stamp" ] && exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# A package is downloaded and unpacked, not installed.
unpack() {
    apt-get -q -o APT::Sandbox::User=root download "$1" >apt.log 2>&1 || {
        cat apt.log >&2
        echo "package $1 can't be downloaded: run apt-get update" >&2
        exit 1
    }
    dpkg-deb -x "$1"_*.deb "$2"
    rm "$1"_*.deb
}
arch=$(dpkg --print-architecture)
kernel=$(apt-cache depends "linux-image-cloud-$arch" | sed -n 's/^ *Depends: *\(linux-image-[0-9].*\)/\1/p' | head -n 1)
[ -n "$kernel" ] || {
    echo "package linux-image-cloud-$arch is not known: run apt-get update" >&2
    exit 1
}
unpack busybox-static busybox
unpack "$kernel" kernel
busybox=$work/busybox/bin/busybox
[ -x "$busybox" ] || busybox=$work/busybox/usr/bin/busybox

mkdir -p root/bin root/dev root/proc root/sys root/modules
cp "$busybox" root/bin/busybox
for name in $("$busybox" --list); do
    [ "$name" = busybox ] || ln -s busybox "root/bin/$name"
done
cp "$here/init" root/init
cp "$here/record" root/bin/record
chmod 755 root/init root/bin/record

# Modules in the order in which they are loaded: what one depends on comes before it.
number=10
done=" "
add() {
    case "$done" in *" $1 "*) return ;; esac
    done="$done$1 "
    found=$(find kernel -name "$(echo "$1" | sed 's/[-_]/[-_]/g').ko*" | head -n 1)
    # What is not a module is a part of the kernel.
    [ -n "$found" ] || return 0
    case "$found" in
    *.xz) "$busybox" xz -dc "$found" >"$1.ko" ;;
    *) cp "$found" "$1.ko" ;;
    esac
    for needed in $(tr '\0' '\n' <"$1.ko" | sed -n 's/^depends=//p' | tr ',' ' '); do
        add "$needed"
    done
    mv "$1.ko" "root/modules/$number-$1.ko"
    number=$((number + 1))
}
for module in virtio_pci virtio_blk virtio_net virtio_rng button evdev; do
    add "$module"
done

mkdir guest
cp kernel/boot/vmlinuz-* guest/vmlinuz
(cd root && find . | "$busybox" cpio -o -H newc 2>/dev/null) | gzip -9 >guest/initrd.gz
cat >guest/os.toml <<'END'
kernel = "vmlinuz"
initrd = "initrd.gz"
append = "console=ttyS0 quiet mitigations=off tsc=reliable no_timer_check cryptomgr.notests"
END
echo "$stamp" >guest/stamp
rm -rf "$cache"
mv guest "$cache"
du -sh "$cache"

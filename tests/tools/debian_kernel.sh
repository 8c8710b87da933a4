#!/bin/sh
# Fetches Debian's kernel for the emulated machine of tests/vm: the image and the drivers that it needs, nothing else.
#   tests/tools/debian_kernel.sh FOLDER
# apt checks what it downloads against its own sources; the package is unpacked, never installed. A folder that has a
# kernel already is left alone.
set -eu
folder=$1
if ls "$folder"/boot/vmlinuz-* >/dev/null 2>&1; then exit 0; fi
[ "$(dpkg --print-architecture)" = amd64 ] || { echo "the emulated machine is amd64" >&2; exit 1; }
package=$(apt-cache depends linux-image-amd64 | awk '$1 == "Depends:" { print $2; exit }')
[ -n "$package" ] || { echo "apt knows no linux-image-amd64: run apt-get update" >&2; exit 1; }
mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
(cd "$work" && apt-get download -qq -o APT::Sandbox::User= "$package")
mkdir "$work/kernel"
dpkg-deb --fsys-tarfile "$work"/*.deb | tar -x -C "$work/kernel" --wildcards './boot/vmlinuz-*' '*/modules.builtin' \
  '*/kernel/drivers/virtio/*' '*/kernel/net/9p/*' '*/kernel/fs/9p/*' '*/kernel/fs/netfs/*' '*/kernel/fs/fscache/*' \
  '*/kernel/fs/overlayfs/*'
rm -rf "$folder"
mv "$work/kernel" "$folder"

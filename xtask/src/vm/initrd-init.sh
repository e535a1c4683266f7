#!/bin/sh
# First process of the guest: loads what the root disk needs, mounts it read-only, and goes there with the payload.
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
$B mount -t devtmpfs dev /dev
while read -r module; do $B insmod "/modules/$module" 2>/dev/null; done < /modules/order
i=0
while [ ! -b /dev/vda ] && [ $i -lt 500 ]; do $B usleep 20000; i=$((i + 1)); done
$B mount -t ext4 -o ro,noatime /dev/vda /newroot || { echo 'GUEST-FAILED no root disk'; exec $B poweroff -f; }
$B mount -t tmpfs -o mode=1777 tmpfs /newroot/tmp
$B mount -t tmpfs tmpfs /newroot/run
$B mount -t tmpfs tmpfs /newroot/payload
$B cp -a /payload/. /newroot/payload/
$B mount --move /dev /newroot/dev
$B mount --move /proc /newroot/proc
$B mount --move /sys /newroot/sys
exec $B switch_root /newroot /bin/bash /payload/init.sh

#!/bin/bash
# The guest's init: mounts what a distribution's init would have, then runs the payloads.
export PATH=/payload:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LANG=C.UTF-8
mount -t tracefs tracefs /sys/kernel/tracing
mount -t debugfs debugfs /sys/kernel/debug
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /dev/pts /dev/shm /run/netns /tmp/out /tmp/root
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount --bind /tmp/root /root
ln -sf /proc/self/fd /dev/fd
ip link set lo up
ulimit -l unlimited
ulimit -c 0
exec /bin/bash /payload/run.sh

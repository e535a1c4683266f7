#!/bin/bash
# Runs the payloads of /payload/order one after the other, each with its own folder, time limit and control group, and
# sends each one's folder to the host as soon as it ends, so that a later crash loses nothing.
export PATH=/payload:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LANG=C.UTF-8

uptime_s() { cut -d' ' -f1 /proc/uptime; }
echo "GUEST-UP $(uptime_s)"

results=
for port in /sys/class/virtio-ports/*; do
  [ "$(cat "$port/name" 2>/dev/null)" = results ] && results=/dev/${port##*/}
done

group=/sys/fs/cgroup/payload
mkdir -p $group
failed=0
while read -r name seconds; do
  out=/tmp/out/$name
  mkdir -p "$out"
  dmesg --clear
  started=$(uptime_s)
  echo "PAYLOAD $name starts $started"
  # A shell that first enters the group, so that everything it starts can be found when it is over.
  OUT=$out bash -c 'echo $$ > '$group'/cgroup.procs; cd "$OUT"; exec timeout --kill-after=5 "$1" bash -c ". /payload/lib.sh; . /payload/$0.sh"' \
    "$name" "$seconds" </dev/null >"$out/log" 2>&1
  rc=$?
  echo 1 > $group/cgroup.kill
  for _ in $(seq 100); do grep -q 'populated 0' $group/cgroup.events && break; sleep 0.05; done
  ended=$(uptime_s)
  echo $rc > "$out/rc"
  awk -v a="$started" -v b="$ended" 'BEGIN { printf "%.2f\n", b - a }' > "$out/seconds"
  uname -r > "$out/kernel"
  dmesg > "$out/dmesg"
  [ -n "$results" ] && tar -c -C /tmp/out "$name" > "$results"
  echo "PAYLOAD $name ends $ended rc $rc"
  [ $rc = 0 ] || [ $rc = 77 ] || failed=$((failed + 1))
done < /payload/order

echo "GUEST-RC $failed"
echo "GUEST-DONE $(uptime_s)"
sync
# isa-debug-exit ends QEMU at once: its exit status is twice the byte written, plus one.
[ -w /dev/port ] && printf '\001' | dd of=/dev/port bs=1 seek=244 count=1 2>/dev/null
echo o > /proc/sysrq-trigger
sleep 60

# The package's unit under the systemd of a real boot: what each of its capabilities is for, those it really runs with, and
# that the service sees counters, posts and a PCIe error with them.
# init: systemd
# kernel: 6.1
# order: 10
# timeout: 240

unit=rdmascope.service
failed() { systemctl status --no-pager -l $unit; journalctl --no-pager -u $unit; fail "$1"; }

fabric || fail 'the fabric did not come up'
modprobe aer_inject || fail 'no aer_inject'
systemctl --version | head -n 1
systemd-analyze verify --man=no /usr/lib/systemd/system/$unit > verify.txt 2>&1
echo $? > verify.rc

# What `doctor` says in the unit's own sandbox, with its capabilities and with some of them taken away.
sed -e 's/^ExecStart=.*/ExecStart=\/usr\/bin\/rdmascope doctor --json/' -e 's/^Type=.*/Type=oneshot/' \
  -e '/^WatchdogSec=/d' -e '/^Restart/d' /usr/lib/systemd/system/$unit > /etc/systemd/system/doctor.service
mkdir -p /etc/systemd/system/doctor.service.d
# doctor NAME CAPABILITIES…: its report in NAME.json, without these.
doctor() {
  local name=$1
  shift
  step "doctor: $name"
  printf '[Service]\nStandardOutput=truncate:%s\n' "$OUT/$name.json" > /etc/systemd/system/doctor.service.d/case.conf
  [ $# = 0 ] || printf 'CapabilityBoundingSet=~%s\nAmbientCapabilities=~%s\n' "$*" "$*" >> /etc/systemd/system/doctor.service.d/case.conf
  systemctl daemon-reload
  systemctl start doctor.service || { journalctl --no-pager -u doctor.service; fail "doctor: $name"; }
}
# Debian's kernels have a level of their own, 3, at which CAP_PERFMON alone opens no perf event.
cat /proc/sys/kernel/perf_event_paranoid > paranoid
doctor all
doctor no_dac_read_search CAP_DAC_READ_SEARCH
doctor no_sys_admin CAP_SYS_ADMIN
echo 2 > /proc/sys/kernel/perf_event_paranoid
doctor no_sys_admin_at_2 CAP_SYS_ADMIN
doctor no_bpf_at_2 CAP_SYS_ADMIN CAP_BPF
doctor no_perfmon_at_2 CAP_SYS_ADMIN CAP_PERFMON
cat paranoid > /proc/sys/kernel/perf_event_paranoid
# The drop-ins that are shipped as examples.
tar -x -C /tmp -f /payload/package.tar ./usr/share/doc/rdmascope/examples
for example in least packets; do
  cp "/tmp/usr/share/doc/rdmascope/examples/systemd/$example.conf" /etc/systemd/system/doctor.service.d/
  [ $example = least ] || printf '[Service]\nEnvironment=RDMASCOPE_PACKETS=auto\n' > /etc/systemd/system/doctor.service.d/wanted.conf
  doctor "$example"
  rm /etc/systemd/system/doctor.service.d/*.conf
done
# The loopback probe needs no drop-in: the verbs devices are allowed already.
printf '[Service]\nEnvironment=RDMASCOPE_LOOPBACK=yes\n' > /etc/systemd/system/doctor.service.d/wanted.conf
doctor loopback
rm /etc/systemd/system/doctor.service.d/*.conf

step 'the service'
echo 'RDMASCOPE_RECORD=/var/lib/rdmascope/node.jsonl' >> /etc/rdmascope/environment
echo 'RDMASCOPE_RING=/var/lib/rdmascope/ring' >> /etc/rdmascope/environment
echo 'RDMASCOPE_PROBE_BUDGET=off' >> /etc/rdmascope/environment
action start
systemctl start $unit || failed 'the service does not start'
action started
pid=$(systemctl show --property MainPID --value $unit)
cat /proc/$pid/status > status
systemctl show $unit > properties
systemd-analyze --no-pager security $unit > security.txt
stat -c '%a %U %G' /run/rdmascope /run/rdmascope/events.sock /var/lib/rdmascope /etc/rdmascope/environment > modes
# The group is what lets a program read the socket.
member() { setpriv --reuid 65534 --regid 65534 --groups "$(getent group rdmascope | cut -d: -f3)" "$@"; }
stranger() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
stranger timeout 5 subscribe /run/rdmascope/events.sock > stranger.jsonl 2>&1
member subscribe /run/rdmascope/events.sock > told.jsonl &

recording=/var/lib/rdmascope/node.jsonl
probed() { grep '"type":"probes"' $recording | grep -qE '"attached":([5-9]|[1-9][0-9])'; }
wait_for 60 probed || failed 'no probes after 60 s'

step 'posts'
perftest write ib_write_bw -n 500 -s 4096 || { cat write.*; fail 'ib_write_bw'; }
posted() { grep -q '"type":"qp_stats"' $recording; }
wait_for 30 posted || failed 'no posts were seen'

step 'a PCIe error'
action inject
aer "$(card_pci)" uncorrected 4000
heard() { grep -q '"rule":"pcie.aer_fatal"' told.jsonl; }
wait_for 30 heard || { cat told.jsonl; failed 'nobody was told of the PCIe error'; }

step 'the configuration, read again'
echo 'interval = "500ms"' > /etc/rdmascope/rdmascope.toml
systemctl reload $unit || failed 'reloading'
journalled() { journalctl --no-pager -o cat -u $unit | grep -qF -- "$1"; }
wait_for 30 journalled 'read again and in force' || failed 'no word of the new configuration'
echo 'interval = "soon"' > /etc/rdmascope/rdmascope.toml
systemctl reload $unit || failed 'reloading'
wait_for 30 journalled 'everything stays as it was' || failed 'no word of the wrong configuration'
[ "$(systemctl show --property MainPID --value $unit)" = "$pid" ] || failed 'it was started anew'

step 'the end'
# A watchdog that was fed, last after it had started.
systemctl show --property ExecMainStartTimestampMonotonic --property WatchdogTimestampMonotonic --property StatusText $unit > alive
action stop
systemctl stop $unit || failed 'the service does not stop'
action stopped
systemctl show --property Result --property ExecMainStatus $unit > end
cp $recording node.jsonl
ls /var/lib/rdmascope/ring > ring
journalctl --no-pager -o cat -u $unit > journal
cat journal
ls -l /run/rdmascope > runtime_after 2>&1 || true

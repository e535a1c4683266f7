# A node without RDMA (the screen shows a demo there and why): what `rdmascope doctor` and the screen say there, and that looking loads no kernel module.
# order: 5
# timeout: 120
# needs: rdmascope

[ ! -e /sys/module/ib_core ] || skip 'an earlier payload loaded ib_core'
modules() { cut -d' ' -f1 /proc/modules | sort; }

# doctor NAME: what it says, its exit code, and the modules before and after.
doctor() {
  step "$1"
  modules > "$1.before"
  rdmascope doctor --json > "$1.json" 2> "$1.err"
  echo $? > "$1.rc"
  rdmascope doctor > "$1.txt"
  modules > "$1.after"
  cat "$1.txt" "$1.err"
}
doctor bare
screen_start bare_screen rdmascope
wait_for 20 shows 'no RDMA' || { capture bare_screen; fail 'the screen does not say that there is no RDMA'; }
capture bare_screen
screen_stop bare_screen
modules > bare.after_screen

# The subsystem alone, without a device and without the interface for processes.
modprobe ib_core || fail 'no ib_core'
doctor core
modprobe -r ib_core || fail 'ib_core stays'

step 'a module that goes and comes while its function is watched'
modprobe ib_uverbs || fail 'no ib_uverbs'
record_start
probes() { grep '"type":"probes"' recording.jsonl | tail -n1 | grep -q "$1"; }
# All but post_send, for which there is no device.
wait_for 30 probes '"attached":8,' || fail 'not all is attached'
modprobe -r ib_uverbs || fail 'ib_uverbs stays while it is watched'
wait_for 30 probes '"attached":7,' || fail 'nobody noticed that ib_uverbs is gone'
modprobe ib_uverbs || fail 'ib_uverbs does not come back'
wait_for 30 probes '"attached":8,' || fail 'nobody noticed that ib_uverbs is back'
# As while any program holds an RDMA netlink socket.
modprobe -r ib_uverbs
modprobe -r ib_core 2> in_use && fail 'ib_core was unloaded under its netlink socket'
cat in_use
record_stop
modprobe -r ib_core || fail 'ib_core stays'

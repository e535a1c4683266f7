# What lies beside the RDMA ports: statistics of their network devices, and a bond that changes its active slave. The
# kernel's own tools say the same things at the same time. Neither kernel has a device with health reporters or DCB.
# order: 40
# timeout: 300
# needs: rdmascope

fabric || fail 'the fabric did not come up'
modprobe e1000e || fail 'no e1000e'
modprobe bonding max_bonds=0 || fail 'no bonding'

# The e1000e's network device, by its PCI function (8086:10d3).
intel_netdev() { basename "$(ls -d "/sys/bus/pci/devices/$(lspci -Dn -d 8086:10d3 | cut -d' ' -f1)"/net/* | head -n1)" | grep .; }
wait_for 30 intel_netdev || fail 'no network device of the e1000e'

step 'a software device on the e1000e as well'
ip link set "$(intel_netdev)" up
rdma link add rxed type rxe netdev "$(intel_netdev)" || fail 'no rxed'
watched=("$(card_netdev)" "$(intel_netdev)")
echo "{\"card\":\"$(card_netdev)\",\"intel\":\"$(intel_netdev)\"}" > netdevs.json
cat netdevs.json

step 'a bond of two slaves, and a software device on it'
for slave in b0 b1; do
  ip link add $slave type veth peer name p$slave || fail "no $slave"
done
ip link add bond0 type bond mode active-backup miimon 50 || fail 'no bond0'
for slave in b0 b1; do
  ip link set $slave down
  ip link set $slave master bond0 || fail "$slave does not join"
  ip link set p$slave up
done
ip addr add 10.0.9.1/24 dev bond0
ip link set bond0 up
bond_is() { grep -qx "$1" /sys/class/net/bond0/bonding/active_slave; }
has_active() { grep -q . /sys/class/net/bond0/bonding/active_slave; }
wait_for 30 has_active || fail 'no active slave'
ip link set bond0 type bond active_slave b0 || fail 'b0 cannot be made active'
wait_for 30 bond_is b0 || fail 'b0 is not active'
rdma link add rxef type rxe netdev bond0 || fail 'no rxef'

# What iproute2 itself hears, each line with the CLOCK_MONOTONIC time it came.
stdbuf -oL ip -d -o monitor link | python3 -uc '
import sys, time
for line in iter(sys.stdin.readline, ""):
    now = time.monotonic_ns()
    # iproute2 joins the lines of one message by backslashes.
    line = line.strip().replace("\\", " ").replace("\"", " ").replace("\t", " ")
    print("{\"t\":%d,\"line\":\"%s\"}" % (now, line), flush=True)
' > monitor.jsonl &
wait_for 30 pgrep -f 'ip -d -o monitor link' || fail 'no monitor'
record_start
# Several rounds over everything: the ports, then what lies beside them.
seen() { grep -q "$1" recording.jsonl; }
wait_for 30 seen '"source":"ethtool"' || { tail -n 30 recording.jsonl; fail 'no statistics of a network device'; }
wait_for 30 seen '"type":"bond"' || fail 'no bond'

# statistics NAME: what ethtool says of every watched network device now, between two times.
statistics() {
  local netdev
  mkdir -p "$1"
  for netdev in "${watched[@]}"; do
    mono start > "$1/$netdev.start"
    ethtool -S "$netdev" > "$1/$netdev.S" 2>&1
    ethtool --json -S "$netdev" --groups eth-phy eth-mac eth-ctrl rmon > "$1/$netdev.groups.json" 2>&1
    ethtool --json -I -a "$netdev" > "$1/$netdev.pause.json" 2>&1
    ethtool --json -I --show-fec "$netdev" > "$1/$netdev.fec.json" 2>&1
    mono end > "$1/$netdev.end"
  done
}
readings() { grep -c "\"netdev\":\"$1\",\"source\":\"ethtool\"" recording.jsonl; }
more_than() { [ "$(readings "$1")" -ge "$2" ]; }
step 'statistics, before and after several readings'
ping -c 3 -i 0.2 -I "$(card_netdev)" 10.0.3.99 > /dev/null 2>&1 || true
statistics before
# What is written lies in a buffer for up to a second: after three more lines one is new.
wait_for 30 more_than "$(card_netdev)" $(($(readings "$(card_netdev)") + 4)) || fail 'the statistics are not read any more'
statistics after

step 'the bond changes its active slave'
action to_b1 bond=bond0
ip link set bond0 type bond active_slave b1 || fail 'b1 cannot be made active'
wait_for 30 bond_is b1 || fail 'b1 is not active'
sleep 1
action to_b0 bond=bond0
ip link set pb1 down
wait_for 30 bond_is b0 || fail 'b0 did not take over'
sleep 1
action taken_over bond=bond0
cat actions
grep -o 'active_slave b[01]' monitor.jsonl || fail 'the monitor heard of no active slave'

step 'doctor'
rdmascope doctor --json > doctor.json 2> doctor.err || fail 'doctor'
wait_for 30 more_than "$(card_netdev)" $(($(readings "$(card_netdev)") + 3)) || fail 'the statistics are not read any more'
record_stop

step 'the bench as it was'
for device in rxed rxef; do
  rdma link delete $device 2>/dev/null || true
done
ip link delete bond0
ip link delete b0
ip link delete b1
ip link set "$(intel_netdev)" down

# What can happen to a connection, each to a connection or a device of its own and most of it at the same time, while
# `rdmascope record` watches: packets that are dropped, a bad key, receives that are missing for a moment and for ever, a
# network device that is set down, a link that flaps, an address that is removed, a bond that fails over. `actions` has the
# CLOCK_MONOTONIC time of what was done, NAME.jsonl what each connection saw.
# order: 32
# timeout: 120
# needs: rdmascope

fabric || fail 'the fabric did not come up'
modprobe bonding max_bonds=0 || fail 'no bonding'
router() { ip netns exec r "$@"; }

# on_host and in_router: lines of `ip`, in one process each.
on_host() { ip -batch - || fail "ip: $1"; }
in_router() { ip -n r -batch - || fail "ip in the router: $1"; }

# routed NETDEV N: 10.0.N.1 on a network device, and all it sends by way of the router's 10.0.N.254.
routed() {
  echo 1 > /proc/sys/net/ipv4/conf/$1/accept_local
  echo 0 > /proc/sys/net/ipv4/conf/$1/rp_filter
  on_host "$1" << END
rule add pref 100 iif $1 lookup local
rule add pref 200 oif $1 lookup 1$2
addr add 10.0.$2.1/24 dev $1
link set $1 up
END
  routes $1 $2
}
routes() {
  on_host "routes of $1" << END
route replace 10.0.$2.0/24 dev $1 src 10.0.$2.1 table 1$2
route replace default via 10.0.$2.254 dev $1 src 10.0.$2.1 table 1$2
END
}

step 'devices of their own for what befalls a device'
on_host 'links' << END
link add vadmin mtu 4200 type veth peer name radmin mtu 4200 netns r
link add vflap mtu 4200 type veth peer name rflap mtu 4200 netns r
link add vgone mtu 4200 type veth peer name rgone mtu 4200 netns r
link add s0 mtu 4200 type veth peer name ps0 mtu 4200 netns r
link add s1 mtu 4200 type veth peer name ps1 mtu 4200 netns r
link add bond1 mtu 4200 type bond mode active-backup miimon 50
link set s0 master bond1
link set s1 master bond1
END
in_router 'links' << END
addr add 10.0.11.254/24 dev radmin
addr add 10.0.12.254/24 dev rflap
addr add 10.0.13.254/24 dev rgone
link add bridge mtu 4200 type bridge
addr add 10.0.14.254/24 dev bridge
link set ps0 master bridge up
link set ps1 master bridge up
link set radmin up
link set rflap up
link set rgone up
link set bridge up
END
routed vadmin 11
routed vflap 12
routed vgone 13
routed bond1 14
for one in admin:vadmin flap:vflap gone:vgone bond:bond1; do
  rdma link add "rxe${one%:*}" type rxe netdev "${one#*:}" || fail "no rxe${one%:*}"
done
slave_is() { grep -qx "$1" /sys/class/net/bond1/bonding/active_slave; }
ip link set bond1 type bond active_slave s0 || fail 's0 cannot be made active'
wait_for 30 slave_is s0 || fail 's0 is not active'
for device in rxeadmin rxeflap rxegone rxebond; do
  wait_for 30 active $device || fail "$device is not active"
done
for way in vadmin vflap vgone bond1; do
  wait_for 30 ping -c1 -W1 -I $way 10.0.2.1 || fail "no way from $way"
done

# Findings that are over after a quiet minute are over after a few seconds here.
cat > qpfaults.toml << END
[rule.qp_retry_exceeded]
clear_s = 6
[rule.qp_rnr]
window_s = 2
clear_s = 6
[rule.qp_software_error]
clear_s = 6
[rule.qp_error_state]
keep_s = 6
END
record_start --config qpfaults.toml

# connection NAME DEVICE PEER [KEY=VALUE…]: in the background, with its process in ${pids[NAME]}.
declare -A pids gids
for device in rxea rxeb rxec rxeadmin rxeflap rxegone rxebond; do gids[$device]=$(gid_index $device) || fail "no GID of $device"; done
connection() {
  local name=$1 device=$2 peer=$3 on=()
  shift 3
  # On 6.1 a post to a device without carrier goes round in the kernel until there is one again. Both connections of the device
  # that loses it together would keep both processors from whoever gives it back.
  [ "$device" = rxeflap ] && on=(taskset -c 0)
  "${on[@]}" pair "$device" "${gids[$device]}" "$peer" "${gids[$peer]}" seconds=90 timeout=14 retry=3 pause_us=40000 depth=4 size=1024 \
    linger=4 "$@" > "$name.jsonl" 2>&1 &
  pids[$name]=$!
}
broken() { wait_for 15 grep -q '"end"' "$1.jsonl" || { cat "$1.jsonl"; fail "$1 did not break"; }; }
qpn() { grep '"connected"' "$1.jsonl" | sed "s/.*\"$2\":\([0-9]*\).*/\1/"; }

step 'connections'
connection untouched rxea rxeb
connection apart rxec rxec
connection drop rxea rxeb
connection rkey rxea rxeb bad_rkey=1
connection rnr rxeb rxea send=1 starve_ms=-1 rnr_retry=3
connection late rxec rxec send=1 starve_ms=300 rnr_retry=7
connection admin rxeadmin rxeb
connection flap rxeflap rxeb
connection patient rxeflap rxeb timeout=17 retry=6
connection gone rxegone rxeb
connection bond rxebond rxeb
# Each has been swept once.
connected() { [ "$(cat ./*.jsonl | grep -c '"what":"connected"')" = ${#pids[@]} ]; }
wait_for 20 connected || fail 'not all of them are connected'
swept() { [ "$(grep '"type":"qp_stats"' recording.jsonl | grep -o '"device":"rxe[^"]*"' | sort -u | wc -l)" = 7 ]; }
wait_for 30 swept || fail 'not all of them have statistics'

step 'faults'
action rkey device=rxea
kill -USR1 "${pids[rkey]}"
action rnr device=rxeb
kill -USR1 "${pids[rnr]}"
action late device=rxec
kill -USR1 "${pids[late]}"
action drop device=rxea
router nft -f - << NFT || fail 'no rule'
table ip faults {
  chain forward {
    type filter hook forward priority filter;
    iifname "ra" udp dport 4791 @th,104,24 $(qpn drop peer_qpn) counter drop
  }
}
NFT
action flap_down netdev=vflap device=rxeflap
ip -n r link set rflap down
ip -n r link set rflap up
action flap_up netdev=vflap device=rxeflap
action admin_down netdev=vadmin device=rxeadmin
ip link set vadmin down
action address_removed netdev=vgone device=rxegone
ip addr del 10.0.13.1/24 dev vgone
action failover bond=bond1 device=rxebond
ip -n r link set ps0 down
wait_for 30 slave_is s1 || fail 's1 did not take over'
for name in rkey rnr drop flap; do broken $name; done
# What the software driver does with what it cannot send: it fails it, or leaves it waiting for ever (seen on 6.1).
for name in admin gone bond; do
  wait_for 8 grep -q '"end"' $name.jsonl || mono stuck connection=$name | tee $name.stuck
done
router nft list ruleset > nft
router nft delete table ip faults

# Long enough to be called stuck: what has waited for ten times its timeout, and 3 s at least.
told() { grep -q '"rule":"qp.stuck".*"device":"rxe'$1'"' findings.jsonl; }
for name in admin gone bond; do [ ! -e $name.stuck ] || wait_for 10 told $name || echo "nobody calls $name stuck"; done

step 'all is well again'
for name in admin gone bond; do [ ! -e $name.stuck ] || kill "${pids[$name]}"; done
action admin_up netdev=vadmin device=rxeadmin
ip link set vadmin up
action address_back netdev=vgone device=rxegone
ip addr add 10.0.13.1/24 dev vgone
routes vadmin 11
routes vgone 13
ip -n r link set ps0 up
action recovered
wait_for 30 active rxeadmin || fail 'rxeadmin stayed down'
wait_for 30 active rxeflap || fail 'rxeflap stayed down'
sleep 10
for name in untouched apart late; do
  grep -q '"error"\|"end"' $name.jsonl && { cat $name.jsonl; fail "$name broke"; }
done
record_stop
[ -z "$recorder" ] || rdmascope failovers --recording recording.jsonl --json > failovers.json || fail 'no report of failovers'
cat actions
for name in "${!pids[@]}"; do echo "== $name"; cat "$name.jsonl"; done

step 'the bench as it was'
kill "${pids[@]}" 2>/dev/null
for name in admin flap gone bond; do rdma link delete rxe$name; done
on_host 'links' << END
link delete vadmin
link delete vflap
link delete vgone
link delete bond1
link delete s0
link delete s1
END
ip -n r link delete bridge
for one in vadmin:11 vflap:12 vgone:13 bond1:14; do ip rule del iif "${one%:*}"; ip rule del table "1${one#*:}"; done
exit 0

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

# routed NETDEV N: 10.0.N.1 on a network device, and all it sends by way of the router's 10.0.N.254.
routed() {
  echo 1 > /proc/sys/net/ipv4/conf/$1/accept_local
  echo 0 > /proc/sys/net/ipv4/conf/$1/rp_filter
  ip rule add pref 100 iif $1 lookup local
  ip rule add pref 200 oif $1 lookup 1$2
  ip addr add 10.0.$2.1/24 dev $1
  ip link set $1 up
  routes $1 $2
}
routes() {
  ip route replace 10.0.$2.0/24 dev $1 src 10.0.$2.1 table 1$2
  ip route replace default via 10.0.$2.254 dev $1 src 10.0.$2.1 table 1$2
}

step 'devices of their own for what befalls a device'
for one in 'admin 11' 'flap 12' 'gone 13'; do
  read -r name n <<< "$one"
  ip link add v$name mtu 4200 type veth peer name r$name mtu 4200 netns r || fail "no v$name"
  ip -n r addr add 10.0.$n.254/24 dev r$name
  ip -n r link set r$name up
  routed v$name $n
  rdma link add rxe$name type rxe netdev v$name || fail "no rxe$name"
done
ip link add bond1 mtu 4200 type bond mode active-backup miimon 50 || fail 'no bond1'
ip -n r link add bridge mtu 4200 type bridge
ip -n r addr add 10.0.14.254/24 dev bridge
ip -n r link set bridge up
for slave in s0 s1; do
  ip link add $slave mtu 4200 type veth peer name p$slave mtu 4200 netns r || fail "no $slave"
  ip -n r link set p$slave master bridge up
  ip link set $slave master bond1 || fail "$slave does not join"
done
routed bond1 14
slave_is() { grep -qx "$1" /sys/class/net/bond1/bonding/active_slave; }
ip link set bond1 type bond active_slave s0 || fail 's0 cannot be made active'
wait_for 10 slave_is s0 || fail 's0 is not active'
rdma link add rxebond type rxe netdev bond1 || fail 'no rxebond'
for device in rxeadmin rxeflap rxegone rxebond; do
  wait_for 10 active $device || fail "$device is not active"
done
for way in vadmin vflap vgone bond1; do
  wait_for 10 ping -c1 -W1 -I $way 10.0.2.1 || fail "no way from $way"
done

# Findings that are over after a quiet minute are over after a few seconds here.
cat > qpfaults.toml << END
[rule.qp_retry_exceeded]
clear_s = 6
[rule.qp_rnr]
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
  local name=$1 device=$2 peer=$3
  shift 3
  pair "$device" "${gids[$device]}" "$peer" "${gids[$peer]}" seconds=90 timeout=14 retry=3 pause_us=40000 depth=4 size=1024 \
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
wait_for 10 swept || fail 'not all of them have statistics'

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
sleep 0.2
ip -n r link set rflap up
routes vflap 12
action flap_up netdev=vflap device=rxeflap
action admin_down netdev=vadmin device=rxeadmin
ip link set vadmin down
action address_removed netdev=vgone device=rxegone
ip addr del 10.0.13.1/24 dev vgone
action failover bond=bond1 device=rxebond
ip -n r link set ps0 down
wait_for 5 slave_is s1 || fail 's1 did not take over'
for name in rkey rnr drop admin flap gone bond; do
  if [ $name = admin ] || [ $name = gone ] || [ $name = bond ]; then
    wait_for 8 grep -q '"end"' "$name.jsonl" || mono stuck connection=$name | tee "$name.stuck"
  else
    broken $name
  fi
done
router nft list ruleset > nft
router nft delete table ip faults

step 'all is well again'
action admin_up netdev=vadmin device=rxeadmin
ip link set vadmin up
action address_back netdev=vgone device=rxegone
ip addr add 10.0.13.1/24 dev vgone
routes vadmin 11
routes vgone 13
ip -n r link set ps0 up
action recovered
wait_for 10 active rxeadmin || fail 'rxeadmin stayed down'
wait_for 10 active rxeflap || fail 'rxeflap stayed down'
sleep 10
for name in untouched apart late patient; do
  grep -q '"error"\|"end"' "$name.jsonl" && { cat "$name.jsonl"; fail "$name broke"; }
done
snapshot end
record_stop
cat actions
for name in "${!pids[@]}"; do echo "== $name"; cat "$name.jsonl"; done

step 'the bench as it was'
kill "${pids[@]}" 2>/dev/null
for name in admin flap gone bond; do rdma link delete rxe$name; done
for netdev in vadmin vflap vgone bond1 s0 s1; do ip link delete $netdev; done
ip -n r link delete bridge
for n in 11 12 13 14; do while ip rule del table 1$n 2>/dev/null; do :; done; done
for netdev in vadmin vflap vgone bond1; do while ip rule del iif $netdev 2>/dev/null; do :; done; done
exit 0

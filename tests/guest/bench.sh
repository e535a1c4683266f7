# Proves the bench itself, without the product: devices, traffic through the router, and an injected PCIe error.
# order: 10
# timeout: 90

fabric || fail 'the fabric did not come up'
rdma link show
step 'traffic'
perftest write ib_write_bw -n 500 -s 4096 || { cat write.*; fail 'ib_write_bw'; }
mbps=$(awk '$1 == 4096 { print $4 }' write.client)
[ -n "$mbps" ] || fail 'ib_write_bw printed no rate'
forwarded=$(ip netns exec r cat /sys/class/net/ra/statistics/rx_bytes)
[ "$forwarded" -gt $((500 * 4096)) ] || fail "only $forwarded bytes went through the router"

step 'a corrected error'
modprobe aer_inject || fail 'no aer_inject'
tracing=/sys/kernel/tracing
echo mono > $tracing/trace_clock
echo 1 > $tracing/events/ras/aer_event/enable
cat $tracing/trace_pipe > trace &
reader=$!
aer "$(card_pci)" corrected 40 | tee actions
wait_for 30 grep -q 'aer_event:' trace || fail 'no aer_event in 5 s'
echo 0 > $tracing/events/ras/aer_event/enable
kill $reader
grep -q "aer_event: $(card_pci) PCIe Bus Error: severity=Corrected, Bad TLP" trace || { cat trace; fail 'another aer_event'; }
grep -q '^BadTLP 1$' "/sys/bus/pci/devices/$(card_pci)/aer_dev_correctable" || fail 'aer_dev_correctable did not count'
cat trace

cat > seen.json <<JSON
{"kernel":"$(uname -r)","devices":[$(ls -1 /sys/class/infiniband | sed 's/.*/"&"/' | paste -sd,)],"write_mb_per_s":$mbps,"forwarded_bytes":$forwarded,"aer":{"pci":"$(card_pci)","root_port":"$(card_root_port)","corrected":1},"btf_ib_core":$([ -e /sys/kernel/btf/ib_core ] && echo true || echo false)}
JSON
cat seen.json

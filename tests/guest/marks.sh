# ECN marks on real packets, which the packet source sees at both ends, against the router's own counts: none, a quarter
# at random without a queue, and those of a queue that is really there. `actions` has when each phase began and ended,
# NAME/ what the router counted in it.
# order: 25
# timeout: 300
# needs: rdmascope

fabric || fail 'the fabric did not come up'
record_start --packets auto
router() { ip netns exec r "$@"; }

# count [MARK]: counts the packets that pass the router from now on, by direction and codepoint, after the rule MARK.
count() {
  router nft flush ruleset
  router nft -f - <<NFT
table ip router {
  counter ab_all {}
  counter ab_ect0 {}
  counter ab_ce {}
  counter ab_not_ect {}
  counter ba_all {}
  counter ba_ce {}
  chain ab {
    $1
    counter name ab_all
    ip ecn ect0 counter name ab_ect0
    ip ecn ce counter name ab_ce
    ip ecn not-ect counter name ab_not_ect
  }
  chain ba {
    counter name ba_all
    ip ecn ce counter name ba_ce
  }
  chain forward {
    type filter hook forward priority filter;
    iifname "ra" udp dport 4791 jump ab
    iifname "rb" udp dport 4791 jump ba
  }
}
NFT
}

# counted NAME: what the router counted, and what is left of the recorder's CPU time and of packets dropped on the way.
counted() {
  mkdir -p "$1"
  router nft -j list counters > "$1/counters.json"
  router tc -s -j qdisc show dev rb > "$1/qdisc.json"
  router ip -s -j link show > "$1/router_links.json"
  ip -s -j link show > "$1/links.json"
  cat /proc/net/softnet_stat > "$1/softnet"
}

# Three readings of rxeb's packets later nothing of before is missing in the recording.
readings() { grep -c '"device":"rxeb".*"source":"packets"' recording.jsonl; }
more_than() { [ "$(readings)" -ge "$1" ]; }
settled() {
  [ -z "$recorder" ] || wait_for 30 more_than $(($(readings) + 12)) || fail 'packets are not told any more'
}
cpu_ticks() { [ -z "$recorder" ] && echo 0 || awk '{ print $14 + $15 }' "/proc/$recorder/stat"; }

# phase NAME SECONDS: traffic from rxea to rxeb with DSCP 26 and ECT(0), whose packets hold 4,096 bytes.
phase() {
  step "$1"
  action begin phase="$1" cpu_ticks="$(cpu_ticks)"
  perftest "$1" ib_write_bw --tclass=106 -s 4096 -t 32 -D "$2" || { cat "$1".*; fail "$1"; }
  action traffic_ends phase="$1" cpu_ticks="$(cpu_ticks)"
  settled
  counted "$1"
  action end phase="$1" cpu_ticks="$(cpu_ticks)"
  cat "$1/counters.json"
}

settled
count ''
phase clean 8

count 'ip ecn ect0 numgen random mod 4 == 0 ip ecn set ce'
phase random 20

# Only the time in the queue marks: CoDel's own target is out of reach, so that no packet is marked for two reasons.
count ''
router tc qdisc add dev rb root handle 1: tbf rate 50mbit burst 20kb limit 400kb || fail 'no tbf'
router tc qdisc add dev rb parent 1: handle 10: fq_codel ce_threshold 1ms ecn target 5s interval 50s || fail 'no fq_codel'
phase queue 20
router tc qdisc del dev rb root
router nft flush ruleset

record_stop
cat findings.jsonl record.err
cat queue/qdisc.json

# `rdmascope record` killed at twenty moments under load: nothing of it stays, and the program it traced goes on.
# order: 26
# timeout: 900
# needs: rdmascope

fabric || fail 'the fabric did not come up'
[ -d /sys/kernel/debug/kprobes ] || mount -t debugfs debugfs /sys/kernel/debug || fail 'no debugfs'
[ -d /sys/fs/bpf ] && mount -t bpf bpf /sys/fs/bpf 2>/dev/null

step 'how long it takes to attach'
began=$(date +%s%N)
rdmascope record first.recording --probe-budget off > /dev/null 2> first.err &
first=$!
attached() { grep '"type":"probes"' first.recording | grep -q '"attached":[1-9]'; }
wait_for 60 attached || { cat first.err; fail 'no probes after 60 s'; }
took_ms=$((($(date +%s%N) - began) / 1000000))
kill -INT $first
wait $first
echo "$took_ms ms"

# Twenty moments up to half as late again.
pair rxea "$(gid_index rxea)" rxeb "$(gid_index rxeb)" seconds=800 pause_us=2000 > traced.jsonl 2>&1 &
traced=$!
wait_for 60 grep -q connected traced.jsonl || { cat traced.jsonl; fail 'pair did not connect'; }

# changed: how many bytes of the provider's code in the traced process differ from its file.
changed() {
  python3 - $traced <<'PYTHON'
import sys
pid = sys.argv[1]
n = 0
for line in open(f"/proc/{pid}/maps"):
    fields = line.split()
    if len(fields) > 5 and "rxe-rdmav" in fields[5] and "x" in fields[1]:
        start, end = (int(part, 16) for part in fields[0].split("-"))
        with open(f"/proc/{pid}/mem", "rb") as memory, open(fields[5], "rb") as file:
            memory.seek(start)
            file.seek(int(fields[2], 16))
            now, before = memory.read(end - start), file.read(end - start)
            n += sum(a != b for a, b in zip(now, before))
print(n)
PYTHON
}
programs() { bpftool prog list | grep -cE '^[0-9]+: (kprobe|tracepoint)'; }
maps() { bpftool map list | grep -cE '^[0-9]+:'; }
kprobes() { grep -c . /sys/kernel/debug/kprobes/list; }
pinned() { find /sys/fs/bpf -type f 2>/dev/null | grep -c .; }
state() { echo "\"programs\":$(programs),\"maps\":$(maps),\"kprobes\":$(kprobes),\"pinned\":$(pinned),\"changed\":$(changed)"; }
state > clean
cat clean
back() { state > now; cmp -s now clean; }

for round in $(seq 20); do
  rm -f killed.recording
  rdmascope record killed.recording --probe-budget off > /dev/null 2> killed.err &
  victim=$!
  sleep "$(awk -v n="$round" -v ms="$took_ms" -v seed="$RANDOM" 'BEGIN { srand(seed); printf "%.2f", ms * (n - rand()) / 20 * 1.5 / 1000 }')"
  before=$(state)
  kill -9 $victim
  wait $victim
  wait_for 20 back || { cat now; fail "round $round: something stayed"; }
  echo "{\"round\":$round,\"before\":{$before},\"after\":{$(cat now)}}" | tee -a killed.jsonl
done
kill $traced
wait_for 30 grep -q '"end"' traced.jsonl || fail 'the traced program does not end'
wait $traced
echo $? > traced.rc
cat traced.jsonl

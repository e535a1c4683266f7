# Binding QPs to counters by type (`--allow-changes`) on software RDMA devices, which take the mode though they have no counter
# that could be bound: what is set, what is left alone, and that all is as before at the end, also after a kill.
# order: 28
# timeout: 300
# needs: rdmascope

fabric || fail 'the fabric did not come up'
# The guest's root is read-only.
notes=/tmp/kept/changes

# mode DEVICE: how QPs of its port are bound, in iproute2's words.
mode() { rdma statistic qp mode link "$1/1" | sed 's/^link [^ ]* //; s/ *$//'; }
is() { [ "$(mode "$1")" = "$2" ]; }
# modes NAME: the modes of all devices, in a file of that name.
modes() { for device in rxea rxeb rxec; do echo "$device $(mode $device)"; done | tee "$1.modes"; }
# A recorder is there when its file has the state of a source.
started() { grep -q '"type":"source"' "$1.recording"; }
noted() { ls $notes/*.json; }

step 'without leave'
modes before
off=$(mode rxea)
timeout -s INT 6 rdmascope record plain.recording --no-ebpf > /dev/null 2> plain.err
modes plain
[ -e $notes ] && fail 'a note was written without leave'

step 'with leave, and no place for a note'
timeout -s INT 8 rdmascope record unnoted.recording --no-ebpf --allow-changes > /dev/null 2> unnoted.err
modes unnoted
export STATE_DIRECTORY=/tmp/kept

step 'with leave, on two of three devices'
rdmascope record allowed.recording --no-ebpf --allow-changes --exclude rxec > /dev/null 2> allowed.err &
recorder=$!
wait_for 30 noted || { cat allowed.err; fail 'no note'; }
changed() { ! is rxea "$off" && ! is rxeb "$off"; }
wait_for 30 changed || { rdma statistic qp mode; cat allowed.err; fail 'the mode was not set'; }
modes allowed
cp $notes/*.json allowed.note
pair rxea "$(gid_index rxea)" rxeb "$(gid_index rxeb)" seconds=3 pause_us=2000 > pair.jsonl 2>&1
echo $? > pair.rc
# The note is of one that lives.
rdmascope doctor --json --no-ebpf --allow-changes > living.json
modes living
kill -INT $recorder
wait $recorder
echo $? > allowed.rc
modes undone
ls $notes > undone.notes 2>&1

step 'killed'
rdmascope record killed.recording --no-ebpf --allow-changes --exclude rxec > /dev/null 2> killed.err &
recorder=$!
wait_for 30 changed || { rdma statistic qp mode; cat killed.err; fail 'the mode was not set'; }
kill -9 $recorder
wait $recorder
modes killed
noted > killed.notes || fail 'the note is gone'
rdmascope doctor --json --no-ebpf > told.json
modes told
rdmascope doctor --json --no-ebpf --allow-changes > next.json
modes next
ls $notes > next.notes 2>&1

step 'what somebody else has set'
rdma statistic qp set link rxea/1 auto pid on || fail 'iproute2 cannot set the mode'
modes others_before
timeout -s INT 8 rdmascope record others.recording --no-ebpf --allow-changes --exclude rxec > /dev/null 2> others.err
modes others
rdma statistic qp set link rxea/1 auto off || fail 'iproute2 cannot end the mode'

step 'a user'
mkdir -p /tmp/state && chmod 777 /tmp/state
cd /tmp/state || fail 'no folder'
timeout -s INT 8 setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all \
  env -u STATE_DIRECTORY XDG_STATE_HOME=/tmp/state rdmascope record user.recording --no-ebpf --allow-changes > /dev/null 2> user.err
cd "$OUT" || fail 'no results'
cp /tmp/state/user.recording /tmp/state/user.err .
modes user
ls -A /tmp/state/rdmascope > user.notes 2>&1
true

# The screens in a real terminal: `rdmascope` in tmux with traffic, keys, and what is left of the terminal afterwards.
# order: 40
# timeout: 300
# needs: rdmascope

rdmascope --version > rdmascope.version 2>&1 && [ -s rdmascope.version ] || skip 'rdmascope says no version: not built, or a placeholder'
fabric || fail 'the fabric did not come up'
modprobe aer_inject || fail 'no aer_inject'
# traffic: a connection that goes on until its link is cut.
traffic() { pair rxea "$(gid_index rxea)" rxeb "$(gid_index rxeb)" seconds=250 pause_us=4000 timeout=14 retry=3 linger=8 > "$1" 2>&1 & }
traffic pair.jsonl

export LC_ALL=C.UTF-8
t() { tmux -u -L bench "$@"; }
# capture FILE: the pane as text, and with its colours in FILE.ansi.
capture() { t capture-pane -p > "$1"; t capture-pane -p -e > "$1.ansi"; }
shows_more_than() { [ "$(t capture-pane -p | grep -c '[^ ]')" -gt "$1" ]; }
shows() { t capture-pane -p | grep -qF -- "$1"; }
differs_from() { ! t capture-pane -p | cmp -s - "$1"; }

# session NAME COLUMNS ROWS: a shell in a new tmux of that size, which runs the program and notes what it leaves.
session() {
  mkdir -p "$1"
  cat > "$1/run" <<RUN
stty -g > $1/stty.before
rdmascope 2> $1/stderr
echo \$? > $1/rc
stty -g > $1/stty.after
RUN
  t -f /dev/null new-session -d -x "$2" -y "$3" bash --norc
  t set -g status off
  t resize-window -x "$2" -y "$3"
  t send-keys "bash $1/run" Enter
  # Before it starts the terminal shows the command's line and nothing else; the program fills the screen.
  started() { [ -e "$1/rc" ] || shows_more_than 5; }
  wait_for 30 started "$1" || { capture "$1/nothing"; fail "$1: no screen after 30 s"; }
  [ ! -e "$1/rc" ] || { cat "$1/stderr"; fail "$1: rdmascope ended at once, exit code $(cat "$1/rc")"; }
}

# over NAME: the program has ended with 0, and the terminal is as it was.
over() {
  wait_for 30 test -s "$1/stty.after" || { capture "$1/hanging"; fail "$1: rdmascope does not end"; }
  capture "$1/after"
  t display-message -p '{"alternate_screen":#{alternate_on},"cursor_shown":#{cursor_flag},"mouse":#{mouse_any_flag}}' > "$1/terminal.json"
  t kill-server
  [ "$(cat "$1/rc")" = 0 ] || { cat "$1/stderr"; fail "$1: exit code $(cat "$1/rc")"; }
  cmp "$1/stty.before" "$1/stty.after" || fail "$1: the terminal's settings changed"
  grep -q '"alternate_screen":0,"cursor_shown":1,"mouse":0' "$1/terminal.json" || { cat "$1/terminal.json"; fail "$1: the terminal is not restored"; }
}

# fault NAME: a PCIe error on the card and a cut link, on the screen until the connection's QPs have failed.
fault() {
  t send-keys 1
  aer "$(card_pci)" corrected 100
  ip -n r link set ra down
  wait_for 20 shows link.down || { capture "$1/no_link_down"; fail "$1: link.down is not on the screen"; }
  wait_for 20 shows qp. || echo "$1: no finding about a QP on the screen"
  capture "$1/fault1"
  t send-keys 5
  wait_for 30 differs_from "$1/fault1"
  capture "$1/fault5"
  t send-keys 3
  wait_for 30 differs_from "$1/fault5"
  capture "$1/fault3"
  ip -n r link set ra up
  fabric || fail 'the fabric did not come back'
}

panes() {
  # The probes start aside of the screen; what they see comes a sweep later.
  wait_for 60 shows 'probes 12/12' || echo "$1: not all probes were attached after 60 s"
  wait_for 10 shows ' G' || true
  sleep 3
  capture "$1/start"
  local last=$1/start key
  for key in 1 3 5 9; do
    t send-keys $key
    wait_for 5 differs_from "$last" || echo "$1: key $key changed nothing"
    capture "$1/pane$key"
    last=$1/pane$key
  done
}

for size in 120x40 80x24; do
  step "$size, ended by q"
  session "$size" "${size%x*}" "${size#*x}"
  panes "$size"
  if [ "$size" = 120x40 ]; then
    fault "$size"
    traffic pair2.jsonl
  fi
  t send-keys q
  over "$size"
done

step 'ended by SIGTERM'
session term 120 40
pkill -TERM -x rdmascope || fail 'no process to end'
over term

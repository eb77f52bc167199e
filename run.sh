# usage: run.sh NAME cmd...: runs in fresh folder with the preload
S=/work/w2/build/release/libcistern.so; A=/work/w2/build/release/tests/ends/programs/leaker
n=$1; shift; mkdir -p d; cd d; [ "$KEEP" ] || rm -f *
LD_PRELOAD=$S CISTERN_REPORT=x.json CISTERN_REPORT_FORMAT=json "$@" >out 2>err; rc=$?
echo "== $n rc=$rc"; sed 's/^/   err: /' err | head -4
for f in $(ls -A | grep -v '^out$\|^err$'); do echo "   $f: $(python3 -c "
import json,sys
try:
  c=json.load(open('$f'))['cistern']; print(c['pid'], c['gpu_memory_used'], c['command'][:60], c['moment'])
except Exception as e: print('?', open('$f').read(30))")"; done

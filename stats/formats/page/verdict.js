// What a stranger reads first: the verdict, the largest leaks, and which process has them.

// [{part, state, level, blocks, bytes, sites, kept}], the worst first; `state` as the text report says it.
function verdictParts(rows, running) {
  const sums = verdictSums(rows);
  return [
    {part: 'lost', state: 'lost', level: 'bad'},
    {part: 'possible', state: 'possibly lost', level: 'warn'},
    {part: 'unjudged', state: running ? 'live' : 'never freed', level: running ? 'neutral' : 'warn'},
    {part: 'reachable', state: running ? 'reachable' : 'reachable, never freed', level: 'neutral'},
  ].map(of => ({...of, ...sums[of.part]})).filter(of => of.blocks);
}

function verdictLine(of, by) {
  const place = name => `verdict.${by}.${of.part}.${name}`;
  return [figure(place('blocks'), of.blocks, counted(of.blocks, 'block')), ', ', bytesFigure(place('bytes'), of.bytes),
          ` ${of.state} at `, figure(place('sites'), of.sites, counted(of.sites, 'site')),
          of.kept ? [', ', bytesFigure(place('kept'), of.kept), ' of it kept alive by sub-buffers'] : []];
}

const growingRows = scope => scope.growing.filter(row => !row.suppressed);

function growthLine(scope) {
  const rows = growingRows(scope);
  if (!rows.length) return [];
  return [make('span', {class: 'warn'}, 'growing by ', bytesFigure('verdict.growing', sumOf(rows, row => row.bytes)),
               ` at ${counted(rows.length, 'site')}`)];
}

function failureLine(scope) {
  const failed = sumOf(Object.values(scope.kinds), kind => kind.failed);
  return failed ? [make('span', {class: 'warn'}, figure('verdict.failed', failed, counted(failed, 'request')),
                        ' for memory failed')] : [];
}

// What a recording does not have.
function missingLines(scope) {
  const sentences = scope.reports.flatMap(({recording}) => Object.values(recording?.missing ?? {}));
  return [...new Set(sentences)].map(sentence => make('span', {class: 'warn', 'data-missing': ''}, sentence));
}

const hintLine = hint => make('span', {class: 'hint'}, hint);

function hostLine(scope) {
  const classes = Object.entries(scope.host_classes).filter(([, of]) => of.blocks)
    .sort(([a], [b]) => severity({class: a}) - severity({class: b}));
  if (!classes.length) return [];
  return [make('span', {class: 'faint'}, 'host memory at the end: ', classes.map(([name, of], i) =>
    [i ? ', ' : '', bytesFigure(`host_classes.${name}.bytes`, of.bytes), ` ${kClasses.get(name) ?? name}`]))];
}

function occasionLine({cistern}) {
  const ways = {exit: 'ended by itself', _exit: 'ended by _exit', call: 'asked by the program, which still runs',
                request: 'asked by a signal; the program still runs',
                recording: 'was killed, still runs, or executed another program'};
  const gate = cistern.gate && `gate: ${cistern.gate.outcome}${cistern.gate.reason ? ` (${cistern.gate.reason})` : ''}`;
  return [`pid ${cistern.pid}`, `ran for ${seconds(cistern.wall_s)}`,
          ways[cistern.moment] ?? `ended by ${cistern.moment}`,
          cistern.exit_code !== undefined && `exit code ${cistern.exit_code} instead of 0`, gate]
    .filter(Boolean).join(', ');
}

function headline(scope, worst, running) {
  if (worst) return {level: worst.level, text: [bytesFigure('verdict.bytes', worst.bytes), ` ${worst.state}`]};
  if (!usedGpu(scope)) return {level: 'neutral', text: 'no GPU memory was used'};
  const growing = sumOf(growingRows(scope), row => row.bytes);
  if (growing) return {level: 'warn', text: ['growing by ', bytesFigure('verdict.growing', growing)]};
  if (running) return {level: 'neutral', text: 'nothing live on the GPU'};
  return {level: 'good', text: 'nothing leaked on the GPU'};
}

function showVerdict(scope, data, openSite, choose) {
  const rows = rowsOnce(scope, gpuLeaks(scope)), running = scope.reports.some(report => !endedByItself(report));
  const program = verdictParts(rows.filter(row => !row.by_library), running);
  const libraries = verdictParts(rows.filter(row => row.by_library), running);
  const {level, text} = headline(scope, program[0] ?? libraries[0], running);
  const lines = [...program.map(of => verdictLine(of, 'program')),
                 ...libraries.map(of => ['by libraries: ', verdictLine(of, 'libraries')]),
                 ...growthLine(scope), ...failureLine(scope), ...missingLines(scope), ...hostLine(scope),
                 ...scope.single ? [occasionLine(scope.single)] : [],
                 ...scope.reports.length === data.processes ? data.hints.map(hintLine) : []];
  section('verdict').className = level;
  section('verdict').replaceChildren(make('div', {}, make('p', {class: 'headline'}, text), list(lines)),
                                     largestSites(scope, data, openSite), processList(scope, choose));
}

// Of the worst memory there is: on the GPU, or else what grew, or else lost memory of the host.
function largestSites(scope, data, openSite) {
  let rows = gpuLeaks(scope), title = 'Largest leaks';
  if (rows.some(isLost)) rows = rows.filter(isLost);
  if (!rows.length) {
    rows = growingRows(scope);
    title = 'Growing most';
  }
  if (!rows.length) {
    rows = scope.leaks.filter(row => isLost(row) && !row.suppressed);
    title = 'Largest lost host memory';
  }
  rows = rowsOnce(scope, rows).filter(row => !row.list).sort((a, b) => b.bytes - a.bytes);
  return siteButtons(title, rows, data, openSite, {
    value: row => row.bytes, color: row => kindColor(row.kind),
    amount: row => bytesFigure('largest.bytes', row.bytes)});
}

// The first rows, which lead to the table. `show`: {value, color, amount} of a row.
function siteButtons(title, rows, data, openSite, show) {
  const kShown = 3;
  if (!rows.length) return make('div');
  return make('div', {class: 'largest'}, make('h2', {}, title), rows.slice(0, kShown).map(row => {
    const bar = make('i', {class: 'bar'});
    bar.style.width = `${100 * show.value(row) / show.value(rows[0])}%`;
    bar.style.background = show.color(row);
    return make('button', {type: 'button', onclick: () => openSite(row)}, bar,
                make('span', {class: 'amount'}, show.amount(row)), kindTag(row.kind),
                make('span', {class: 'where'}, siteName(row, data)));
  }));
}

function processList(scope, choose) {
  const kShown = 12;
  if (scope.single) return make('div');
  const gpuPeak = ({kinds}) => sumOf(Object.entries(kinds), ([kind, of]) => kind === 'host' ? 0 : of.peak_bytes);
  const rows = scope.reports.map(report => ({
    report, lost: sumOf(gpuLeaks(report).filter(isLost), row => row.bytes), peak: gpuPeak(report),
    host: report.kinds.host?.peak_bytes ?? 0})).sort((a, b) => b.lost - a.lost || b.peak - a.peak);
  const name = ({report}) => make('button', {type: 'button', class: 'link', onclick: () => choose(report)},
                                  processName(report));
  const more = rows.length > kShown ? make('small', {}, `the ${kShown} that lost most; the menu has all`) : [];
  return make('div', {class: 'processes'},
    make('h2', {}, counted(rows.length, 'process', 'processes'), more), tableOf([
      {title: 'process', cell: name},
      figureColumn('lost on the GPU', () => 'process.lost', row => row.lost, bytes),
      figureColumn('GPU peak', () => 'process.peak', row => row.peak, bytes),
      figureColumn('host peak', () => 'process.host_peak', row => row.host, bytes),
      {title: 'ran for', class: 'number', cell: row => seconds(row.report.cistern.wall_s)},
    ], rows.slice(0, kShown)));
}

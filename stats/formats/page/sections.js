// The parts of the page that are text and tables: each fills its section from a scope (data.js).

const about = (scope, place) => scope.estimated.has(place) ? 'about ' : '';
const blocksText = (count, size) => `${bytes(size)} in ${counted(count, 'block')}`;
const section = id => document.querySelector(`#${id} .body`) ?? document.getElementById(id);
const note = text => make('p', {class: 'note'}, text);

// --- Verdict

// [{value, blocks, sites, state}], the worst first; `state` as the text report says it.
function verdictParts(rows, running) {
  const sums = verdictSums(rows);
  return [['lost', 'lost', 'bad'], ['possible', 'possibly lost', 'warn'],
          ['unjudged', running ? 'live' : 'never freed', running ? '' : 'warn'],
          ['reachable', running ? 'reachable' : 'reachable, never freed', '']]
    .map(([part, state, level]) => ({part, state, level, ...sums[part]})).filter(of => of.blocks);
}

function verdictLine(part, by) {
  return make('span', {}, figure(`verdict.${by}.${part.part}.blocks`, part.blocks, counted(part.blocks, 'block')), ', ',
    bytesFigure(`verdict.${by}.${part.part}.bytes`, part.bytes), ` ${part.state} at `,
    figure(`verdict.${by}.${part.part}.sites`, part.sites, counted(part.sites, 'site')),
    part.kept ? [', ', bytesFigure(`verdict.${by}.${part.part}.kept`, part.kept), ' of it kept alive by sub-buffers'] : '');
}

function occasionOf({cistern}) {
  const ended = {exit: 'ended by itself', _exit: 'ended by _exit', call: 'requested by the program, which is still running',
                 request: 'requested by a signal; the program is still running'}[cistern.moment];
  return [`pid ${cistern.pid}, ran for ${seconds(cistern.wall_s)}, ${ended ?? `ended by ${cistern.moment}`}`,
          cistern.exit_code === undefined ? '' : `exit code ${cistern.exit_code} instead of 0`,
          cistern.gate ? `gate: ${cistern.gate.outcome}${cistern.gate.reason ? ` (${cistern.gate.reason})` : ''}` : '']
    .filter(Boolean).join('; ');
}

function showVerdict(scope, openSite, choose, data) {
  const rows = gpuLeaks(scope), running = scope.reports.some(report => !endedByItself(report));
  const program = verdictParts(rows.filter(row => !row.by_library), running);
  const libraries = verdictParts(rows.filter(row => row.by_library), running);
  const worst = program[0] ?? libraries[0];
  const used = scope.reports.some(report => report.cistern.gpu_memory_used);
  const level = worst ? worst.level || 'neutral' : used ? 'good' : 'neutral';
  const headline = worst ? [bytesFigure('verdict.bytes', worst.bytes), ` ${worst.state}`]
                 : !used ? 'no GPU memory was used' : running ? 'nothing live on the GPU' : 'nothing leaked on the GPU';
  const lines = [...program.map(part => verdictLine(part, 'program')),
                 ...libraries.map(part => make('span', {}, 'by libraries: ', verdictLine(part, 'libraries'))),
                 ...growthLine(scope), hostLine(scope), ...scope.reports.length === 1 ? [occasionOf(scope.reports[0])] : []];
  section('verdict').className = level;
  section('verdict').replaceChildren(
    make('div', {class: 'said'}, make('p', {class: 'headline'}, headline), 
         make('ul', {}, lines.filter(Boolean).map(line => make('li', {}, line)))),
    largestSites(scope, rows, openSite, data), processList(scope, choose));
}

function growthLine(scope) {
  const growing = scope.growing.filter(row => !row.suppressed);
  const sum = growing.reduce((all, row) => all + row.bytes, 0);
  return growing.length ? [make('span', {class: 'warn'}, 'growing by ', bytesFigure('verdict.growing.bytes', sum),
                                ` at ${counted(growing.length, 'site')}`)] : [];
}

function hostLine(scope) {
  const classes = Object.entries(scope.host_classes).filter(([, of]) => of.blocks)
    .sort(([a], [b]) => severity({class: a}) - severity({class: b}));
  if (!classes.length) return '';
  return make('span', {class: 'faint'}, 'host memory at the end: ', classes.flatMap(([name, of], i) =>
    [i ? ', ' : '', bytesFigure(`host_classes.${name}.bytes`, of.bytes), ` ${kClasses.get(name) ?? name}`]));
}

// Of the worst memory there is: on the GPU, else lost memory of the host.
function largestSites(scope, gpu, openSite, data) {
  const kShown = 3;
  let rows = gpu.filter(isLost), title = 'Largest leaks';
  if (!rows.length) rows = gpu;
  if (!rows.length) rows = scope.leaks.filter(row => isLost(row) && !row.suppressed), title = 'Largest lost host memory';
  rows = mergedRows(rows).filter(row => !row.list).sort((a, b) => b.bytes - a.bytes).slice(0, kShown);
  if (!rows.length) return '';
  return make('div', {class: 'largest'}, make('h2', {}, title), rows.map(row => {
    const bar = make('i', {class: 'bar'});
    bar.style.width = `${100 * row.bytes / rows[0].bytes}%`;
    bar.style.background = kindColor(row.kind);
    return make('button', {type: 'button', onclick: () => openSite(row)}, bar,
      make('span', {class: 'amount'}, bytesFigure('largest.bytes', row.bytes)), kindTag(row.kind), 
      make('span', {class: 'where'}, siteName(row, data)));
  }));
}

// Rows of several processes that differ in nothing but that.
function mergedRows(rows) {
  const sums = new Map();
  for (const row of rows) {
    const key = [row.kind, row.class, row.frames, row.api, row.object, row.suppressed, row.list, row.by_library].join('|');
    const sum = sums.get(key);
    if (!sum) { sums.set(key, {...row}); continue; }
    for (const name of ['blocks', 'bytes', 'rows', 'peak_blocks', 'peak_bytes', 'allocations', 'temporary'])
      if (row[name] !== undefined) sum[name] += row[name];
    if (row.first_s !== undefined) sum.first_s = Math.min(sum.first_s, row.first_s), sum.last_s = Math.max(sum.last_s, row.last_s);
  }
  return [...sums.values()];
}

function processList(scope, choose) {
  if (scope.reports.length < 2) return '';
  const rows = scope.reports.map(report => {
    const lost = gpuLeaks(report).filter(isLost).reduce((sum, row) => sum + row.bytes, 0);
    const peak = Object.entries(report.kinds).reduce((sum, [kind, of]) => sum + (kind === 'host' ? 0 : of.peak_bytes), 0);
    return {report, lost, peak, host: report.kinds.host?.peak_bytes ?? 0};
  }).sort((a, b) => b.lost - a.lost || b.peak - a.peak);
  const kShown = 12, table = tableOf([
    {title: 'process', cell: row => make('button', {type: 'button', class: 'link', onclick: () => choose(row.report)}, processName(row.report))},
    {title: 'lost on the GPU', class: 'number', cell: row => bytesFigure('process.lost', row.lost)},
    {title: 'GPU peak', class: 'number', cell: row => bytesFigure('process.peak', row.peak)},
    {title: 'host peak', class: 'number', cell: row => bytesFigure('process.host_peak', row.host)},
    {title: 'ran for', class: 'number', cell: row => seconds(row.report.cistern.wall_s)}], rows.slice(0, kShown));
  return make('div', {class: 'processes scroll'}, make('h2', {}, counted(rows.length, 'process').replace(/ss(es|s)$/, 'sses'), 
    rows.length > kShown ? make('small', {}, ` the ${kShown} that lost most; the menu has all`) : ''), table);
}

// --- Kinds

function showKinds(scope) {
  const driverCalls = kind => kind.driver_allocs + kind.driver_frees + kind.driver_syncs + kind.driver_queries;
  const place = (name, figure) => `kinds.${name}.${figure}`;
  const amount = name => ([kind, of]) => bytesFigure(place(kind, name), of[name]);
  const several = scope.reports.length > 1;
  section('kinds').replaceChildren(make('div', {class: 'scroll'}, tableOf([
    {title: 'kind', cell: ([kind]) => kindTag(kind)},
    {title: 'live at the end', class: 'number', cell: amount('live_bytes')},
    {title: 'in blocks', class: 'number', cell: ([kind, of]) => figure(place(kind, 'live_blocks'), of.live_blocks, grouped(of.live_blocks))},
    {title: 'peak', class: 'number', cell: ([kind, of]) => [several ? 'at most ' : about(scope, place(kind, 'peak_bytes')), amount('peak_bytes')([kind, of]),
      of.peak_at_s === undefined ? '' : make('span', {class: 'faint'}, ` at ${seconds(of.peak_at_s)}`)]},
    {title: 'retained', class: 'number', cell: ([kind, of]) => of.pooled ? amount('pooled_bytes')([kind, of]) : '-'},
    {title: 'allocations', class: 'number', cell: ([kind, of]) => figure(place(kind, 'allocations'), of.allocations, grouped(of.allocations))},
    {title: 'hit rate', class: 'number', cell: ([kind, of]) => of.pooled && of.allocations
      ? figure(place(kind, 'pool_hits'), of.pool_hits, percent(of.pool_hits / of.allocations)) : '-'},
    {title: 'driver calls', class: 'number', cell: ([kind, of]) => figure(place(kind, 'driver_calls'), driverCalls(of), grouped(driverCalls(of)))},
    {title: 'failed', class: 'number', cell: ([kind, of]) => figure(place(kind, 'failed'), of.failed, of.failed ? grouped(of.failed) : '-', {class: of.failed ? 'bad' : ''})},
    {title: 'left to the driver', cell: ([, of]) => Object.entries(of.unpooled ?? {}).map(([why, count]) => `${why} ${grouped(count)}`).join(', ')},
  ], Object.entries(scope.kinds))), ...scope.device_memory.map(showDevice));
}

// A bar of parts [{value, title, color, class}] that are shares of `whole`.
function barOf(parts, whole, place) {
  return make('div', {class: 'share'}, parts.filter(part => part.value > 0).map(part => {
    const piece = make('span', {class: part.class, title: `${part.title} ${bytes(part.value)}`,
                                'data-figure': `${place}.${part.name}`, 'data-value': part.value});
    piece.style.width = `${100 * part.value / whole}%`;
    if (part.color) piece.style.background = part.color;
    return piece;
  }));
}

function showDevice(device) {
  const place = `device_memory.${device.device}`;
  return make('div', {class: 'row'}, make('p', {}, kindTag(`device:${device.device}`), ' this process ', bytesFigure(`${place}.ours_bytes`, device.ours_bytes),
    ', driver and other processes ', bytesFigure(`${place}.driver_owned_bytes`, device.driver_owned_bytes), ', free ',
    bytesFigure(`${place}.free_bytes`, device.free_bytes), ' of ', bytesFigure(`${place}.total_bytes`, device.total_bytes)),
    barOf([{name: 'ours', value: device.ours_bytes, title: 'this process', color: kindColor(`device:${device.device}`)},
           {name: 'others', value: device.driver_owned_bytes, title: 'driver and other processes', class: 'others'}],
          device.total_bytes, place));
}

// --- Reserved and free memory

function showFragmentation(scope) {
  const rows = Object.entries(scope.fragmentation).filter(([, of]) => of.reserved_bytes || of.reserved_peak_bytes);
  const body = rows.map(([kind, of]) => fragmentationRow(kind, of, scope.kinds[kind]));
  section('fragmentation').replaceChildren(...rows.length ? [make('p', {class: 'legend'},
    make('i', {class: 'swatch live'}), 'live ', make('i', {class: 'swatch largest_free'}), 'largest free block ',
    make('i', {class: 'swatch free'}), 'other free ', make('i', {class: 'swatch back'}), 'given back since the most')] : 
    [note('No pool reserved memory.')], ...body, ...scope.device_ranges.map(rangeRow));
}

function fragmentationRow(kind, of, figures) {
  const place = name => `fragmentation.${kind}.${name}`;
  const most = Math.max(of.reserved_peak_bytes ?? 0, of.reserved_bytes, 1);
  const largest = Math.min(of.largest_free_bytes, of.free_bytes);
  const facts = [['reserved_bytes', 'reserved'], ['live_bytes', 'live'], ['free_bytes', 'free'],
                 ['largest_free_bytes', 'largest free'], ['reserved_peak_bytes', 'most reserved']]
    .filter(([name]) => of[name]).flatMap(([name, title], i) => [`${i ? ', ' : ' '}${title} `, bytesFigure(place(name), of[name])]);
  const shares = [['internal', 'inside blocks'], ['external', 'between blocks']].filter(([name]) => of[name])
    .flatMap(([name, title]) => [', wasted ', title, ' ', figure(place(name), of[name], percent(of[name]))]);
  const worst = of.worst && of.worst.reserved_bytes >= 2 * of.worst.live_bytes
    ? `, worst at ${seconds(of.worst.at_s)}: ${bytes(of.worst.reserved_bytes)} for ${bytes(of.worst.live_bytes)}` : '';
  return make('div', {class: 'row'}, make('p', {}, kindTag(kind), facts, shares, worst),
    barOf([{name: 'live_part', value: of.live_bytes, title: 'live', color: kindColor(kind)},
           {name: 'largest_part', value: largest, title: 'largest free block', class: 'largest_free'},
           {name: 'free_part', value: of.free_bytes - largest, title: 'other free memory', class: 'free'},
           {name: 'back_part', value: most - of.reserved_bytes, title: 'given back', class: 'back'}], most, `fragmentation.${kind}`),
    sizeClasses(kind, figures ?? {}));
}

function sizeClasses(kind, {classes = [], sizes = []}) {
  if (!classes.length && !sizes.length) return '';
  const place = (row, name) => `kinds.${kind}.${row.sizes ?? row.block_bytes}.${name}`;
  const count = (title, name) => ({title, class: 'number', cell: row => figure(place(row, name), row[name], grouped(row[name]))});
  const table = classes.length
    ? tableOf([{title: 'class', cell: row => row.sizes}, count('allocations', 'allocations'),
               {title: 'hits', class: 'number', cell: row => row.allocations ? percent(row.hits / row.allocations) : '-'},
               count('live', 'live_blocks'), count('retained', 'cached_blocks'),
               {title: 'of', class: 'number', cell: row => bytesFigure(place(row, 'cached_bytes'), row.cached_bytes)},
               count('most live', 'high_water_blocks')], classes)
    : tableOf([{title: 'block', class: 'number', cell: row => bytes(row.block_bytes)}, count('allocations', 'allocations'),
               count('live', 'live_blocks'), count('free in pages', 'free_blocks'),
               {title: 'live bytes', class: 'number', cell: row => bytes(row.live_blocks * row.block_bytes)}],
              [...sizes].sort((a, b) => b.live_blocks * b.block_bytes - a.live_blocks * a.block_bytes));
  return make('details', {}, make('summary', {}, counted(classes.length || sizes.length, classes.length ? 'size class' : 'block size')
    .replace('classs', 'classes')), make('div', {class: 'scroll'}, table));
}

function rangeRow(of) {
  const place = name => `device_ranges.${of.device}.${name}`, kind = `device:${of.device}`;
  const other = Math.max(of.mapped_bytes - of.largest_free_bytes - of.waiting_bytes, 0);
  return make('div', {class: 'row'}, make('p', {}, kindTag(kind), ' range: ', bytesFigure(place('mapped_bytes'), of.mapped_bytes), ' mapped, most ',
    bytesFigure(place('mapped_peak_bytes'), of.mapped_peak_bytes), ' for ', bytesFigure(place('used_peak_bytes'), of.used_peak_bytes), ' used; largest free ',
    bytesFigure(place('largest_free_bytes'), of.largest_free_bytes), ', waiting ', bytesFigure(place('waiting_bytes'), of.waiting_bytes),
    `; ${counted(of.allocations, 'allocation')} with ${counted(of.driver_calls, 'driver call')}, ${counted(of.moved_pieces, 'piece')} moved`),
    barOf([{name: 'used_part', value: other, title: 'live, and small free extents', color: kindColor(kind)},
           {name: 'waiting_part', value: of.waiting_bytes, title: 'freed, the device may still use it', class: 'free'},
           {name: 'largest_part', value: of.largest_free_bytes, title: 'largest free extent', class: 'largest_free'},
           {name: 'back_part', value: of.mapped_peak_bytes - of.mapped_bytes, title: 'unmapped', class: 'back'}],
          Math.max(of.mapped_peak_bytes, of.mapped_bytes, 1), `device_ranges.${of.device}`));
}

// --- Transfers, waits, staging

const hostMemory = row => row.pageable === undefined ? '' : row.pageable ? 'pageable' : 'pinned';

function showCopies(scope, data) {
  const parts = [];
  if (scope.transfers.length) parts.push(make('div', {class: 'scroll'}, tableOf([
    {title: 'direction', cell: row => row.direction},
    {title: 'host memory', cell: row => [hostMemory(row), row.asynchronous ? 'async' : ''].filter(Boolean).join(', ')},
    {title: 'copies', class: 'number', cell: row => figure('transfers.count', row.count, grouped(row.count))},
    {title: 'bytes', class: 'number', cell: row => bytesFigure('transfers.bytes', row.bytes)},
    {title: 'blocked for', class: 'number', cell: row => row.seconds === undefined ? '-' : figure('transfers.seconds', row.seconds, duration(row.seconds))},
    {title: 'median', class: 'number', cell: row => rate(row.bytes_per_s_p50)},
    {title: 'vs best', class: 'number', cell: row => row.efficiency === undefined ? '-' : figure('transfers.efficiency', row.efficiency, percent(row.efficiency))},
  ], scope.transfers)));
  const sites = mergedRows(scope.copy_sites).sort((a, b) => b.bytes - a.bytes).slice(0, 8);
  parts.push(...siteDetails('Copied most', sites, data, row =>
    [bytesFigure('copy_sites.bytes', row.bytes), ` ${row.direction}${row.pageable ? ', pageable' : ''}`,
     row.seconds === undefined ? '' : `, blocked for ${duration(row.seconds)}`]));
  const waits = [...scope.waits].sort((a, b) => b.seconds - a.seconds).slice(0, 8);
  parts.push(...siteDetails('Waited for a device', waits, data, row =>
    [figure('waits.seconds', row.seconds, duration(row.seconds)), ` in ${counted(row.count, 'call')}`]));
  const staged = scope.staging.filter(row => row.staged_copies || row.passed_on_bytes);
  if (staged.length) parts.push(make('h3', {}, 'Through bounce buffers'), make('ul', {}, staged.map(row => make('li', {},
    `device ${row.device}, ${row.direction}: `, bytesFigure('staging.staged_bytes', row.staged_bytes), ` in ${grouped(row.staged_copies)} copies; left to the driver `,
    bytesFigure('staging.passed_on_bytes', row.passed_on_bytes), 
    ...Object.entries(row.passed_on ?? {}).map(([why, count], i) => `${i ? ', ' : ' ('}${why} ${grouped(count)}`), Object.keys(row.passed_on ?? {}).length ? ')' : ''))));
  section('copies').replaceChildren(...parts.length ? parts : [note('No copies, and no waits for a device.')]);
}

function siteDetails(title, rows, data, amount) {
  if (!rows.length) return [];
  return [make('h3', {}, title), ...rows.map(row => make('details', {},
    make('summary', {}, amount(row), '  ', siteName(row, data)), stackList(stackOf(row, data))))];
}

// --- Notes

function showNotes(scope, data) {
  const sum = (list, name) => list.reduce((all, of) => all + of[name], 0);
  const others = scope.reports.flatMap(report => report.others);
  const lines = [], left_out = data.processes - data.reports.length;
  if (others.length) lines.push(['Left out of this page, to keep it small: ', figure('left_out.rows', sum(others, 'rows'), counted(sum(others, 'rows'), 'row')),
    ' by call site, the smallest, of ', bytesFigure('left_out.bytes', sum(others, 'bytes')), '. They are in the sums, without their stacks.']);
  if (left_out) lines.push(['Left out of this page, and of all its sums: ', figure('left_out.processes', left_out, grouped(left_out)),
    ` of ${data.processes} processes, those with least live memory.`]);
  for (const {judging} of scope.reports) {
    if (judging?.why_not) lines.push([`Which blocks the program can still reach is not known: ${judging.why_not}.`]);
    if (judging?.unseen_threads) lines.push([`The registers of ${counted(judging.unseen_threads, 'other thread')} were not seen.`]);
    if (judging?.unreadable_bytes) lines.push([`${bytes(judging.unreadable_bytes)} of memory could not be read.`]);
  }
  for (const name of new Set(scope.reports.flatMap(report => report.frameworks)))
    lines.push([`${name} has a memory cache of its own: memory in it counts as live.`]);
  const without = scope.reports.map(report => report.host_without_site).filter(Boolean);
  if (without.length) lines.push(['Live host memory without a call site: ', bytesFigure('host_without_site.bytes', sum(without, 'bytes')), '.']);
  if (scope.estimated.size) lines.push([`Estimates: ${[...scope.estimated].join(', ')}.`]);
  if (scope.reports.length > 1) lines.push(['Figures of several processes are added up. Each process has its own start as second 0, and peaks may have been at different times.']);
  const modes = new Set(scope.reports.map(report => report.sites?.mode).filter(Boolean));
  lines.push([`Call sites: ${[...modes].join('; ') || 'none'}. Sizes are in powers of 1024. Cistern ${data.version}.`]);
  section('notes').replaceChildren(make('ul', {}, [...new Map(lines.map(line => [line.map(part => part.textContent ?? part).join(''), line])).values()]
    .map(line => make('li', {}, line))));
}

// The figures of each kind of memory, and what the pools hold: bars of live and free memory, size classes, ranges.

function showKinds(scope) {
  const place = name => ([kind]) => `kinds.${kind}.${name}`;
  const count = (title, name) => figureColumn(title, place(name), ([, of]) => of[name]);
  const size = (title, name) => figureColumn(title, place(name), ([, of]) => of[name], bytes);
  const peak = ([kind, of]) => [
    scope.estimated.has(`kinds.${kind}.peak_bytes`) ? 'about ' : '',
    bytesFigure(`kinds.${kind}.peak_bytes`, of.peak_bytes),
    of.peak_at_s === undefined ? '' : make('span', {class: 'faint'}, ` at ${seconds(of.peak_at_s)}`)];
  const hits = ([kind, of]) => !of.pooled || !of.allocations ? '-'
    : figure(`kinds.${kind}.pool_hits`, of.pool_hits, percent(of.pool_hits / of.allocations));
  const calls = ([, of]) => of.driver_allocs + of.driver_frees + of.driver_syncs + of.driver_queries;
  const failed = ([kind, of]) => make('span', {class: of.failed ? 'bad' : undefined},
                                      figure(`kinds.${kind}.failed`, of.failed, of.failed ? grouped(of.failed) : '-'));
  const pooled = scope.reports.some(report => !report.recording);  // a recording knows nothing of pools
  section('kinds').replaceChildren(tableOf([
    {title: 'kind', cell: ([kind]) => kindTag(kind)},
    size('live at the end', 'live_bytes'),
    count('in blocks', 'live_blocks'),
    {title: scope.single ? 'peak' : 'peak of one process', class: 'number', cell: peak},
    pooled && figureColumn('retained', place('pooled_bytes'), ([, of]) => of.pooled ? of.pooled_bytes : undefined,
                           bytes),
    count('allocations', 'allocations'),
    pooled && {title: 'hit rate', class: 'number', cell: hits},
    pooled && figureColumn('driver calls', place('driver_calls'), calls),
    {title: 'failed', class: 'number', cell: failed},
    pooled && {title: 'left to the driver', cell: ([, of]) => listed(of.unpooled)},
  ].filter(Boolean), Object.entries(scope.kinds)), ...scope.device_memory.map(deviceRow));
}

// "reserved 3.5 MiB, live 3.1 MiB" of [[name, title], ...] that are not 0.
const amounts = (place, of, names) => names.filter(([name]) => of[name]).map(([name, title], i) =>
  [i ? ', ' : ' ', title, ' ', bytesFigure(`${place}.${name}`, of[name])]);

function deviceRow(of) {
  const place = `device_memory.${of.device}`, kind = `device:${of.device}`;
  const names = [['ours_bytes', 'this process'], ['driver_owned_bytes', 'driver and other processes'],
                 ['free_bytes', 'free'], ['total_bytes', 'in total']];
  return make('div', {class: 'row'}, make('p', {}, kindTag(kind), amounts(place, of, names)),
    barOf(place, of.total_bytes, [
      {name: 'ours', value: of.ours_bytes, title: 'this process', color: kindColor(kind)},
      {name: 'others', value: of.driver_owned_bytes, title: 'driver and other processes', class: 'largest_free'}]));
}

// --- Reserved and free memory

function showPools(scope) {
  const rows = Object.entries(scope.fragmentation).filter(([, of]) => of.reserved_bytes || of.reserved_peak_bytes);
  const sign = name => make('i', {class: `swatch ${name}`});
  const legend = make('p', {class: 'legend'}, sign('live'), 'live', sign('largest_free'), 'largest free block',
                      sign('free'), 'other free', sign('back'), 'given back since the most');
  section('fragmentation').replaceChildren(rows.length ? legend : note(
    scope.reports.every(report => report.recording) ? 'A recording does not have this.' : 'No pool reserved memory.'),
    ...rows.map(([kind, of]) => poolRow(scope, kind, of)), ...scope.device_ranges.map(rangeRow));
}

function poolRow(scope, kind, of) {
  const place = `fragmentation.${kind}`, largest = Math.min(of.largest_free_bytes, of.free_bytes);
  const most = Math.max(of.reserved_peak_bytes ?? 0, of.reserved_bytes, 1);
  const names = [['reserved_bytes', 'reserved'], ['live_bytes', 'live'], ['free_bytes', 'free'],
                 ['largest_free_bytes', 'largest free'], ['reserved_peak_bytes', 'most reserved']];
  const about = name => scope.estimated.has(`${place}.${name}`) ? 'about ' : '';
  const share = (name, title) => !of[name] ? [] : [
    `, wasted ${title} ${about(name)}`, figure(`${place}.${name}`, of[name], percent(of[name]))];
  const wasted = [share('internal', 'inside blocks'), share('external', 'between blocks')];
  const worst = of.worst && of.worst.reserved_bytes >= 2 * of.worst.live_bytes
    ? `, worst at ${seconds(of.worst.at_s)}: ${bytes(of.worst.reserved_bytes)} for ${bytes(of.worst.live_bytes)}` : '';
  return make('div', {class: 'row'}, make('p', {}, kindTag(kind), amounts(place, of, names), wasted, worst),
    barOf(place, most, [
      {name: 'live_part', value: of.live_bytes, title: 'live', color: kindColor(kind)},
      {name: 'largest_part', value: largest, title: 'largest free block', class: 'largest_free'},
      {name: 'free_part', value: of.free_bytes - largest, title: 'other free memory', class: 'free'},
      {name: 'back_part', value: most - of.reserved_bytes, title: 'given back', class: 'back'}]),
    sizeClasses(kind, scope.kinds[kind] ?? {}));
}

function sizeClasses(kind, {classes = [], sizes = []}) {
  const place = name => row => `kinds.${kind}.${row.sizes ?? row.block_bytes}.${name}`;
  const count = (title, name) => figureColumn(title, place(name), row => row[name]);
  const live = row => row.live_blocks * row.block_bytes;
  const folded = (title, columns, rows) => make('details', {}, make('summary', {}, title), tableOf(columns, rows));
  if (classes.length)
    return folded(counted(classes.length, 'size class', 'size classes'), [
      {title: 'class', cell: row => row.sizes}, count('allocations', 'allocations'),
      {title: 'hit rate', class: 'number', cell: row => row.allocations ? percent(row.hits / row.allocations) : '-'},
      count('live', 'live_blocks'), count('retained', 'cached_blocks'),
      figureColumn('of', place('cached_bytes'), row => row.cached_bytes, bytes),
      count('most live', 'high_water_blocks')], classes);
  if (sizes.length)
    return folded(counted(sizes.length, 'block size'), [
      {title: 'block', class: 'number', cell: row => bytes(row.block_bytes)}, count('allocations', 'allocations'),
      count('live', 'live_blocks'), figureColumn('of', place('live_bytes'), live, bytes),
      count('free in pages', 'free_blocks')], [...sizes].sort((a, b) => live(b) - live(a)));
  return [];
}

function rangeRow(of) {
  const place = `device_ranges.${of.device}`, kind = `device:${of.device}`;
  const names = [['mapped_bytes', 'range: mapped'], ['mapped_peak_bytes', 'most mapped'],
                 ['used_peak_bytes', 'most used'], ['largest_free_bytes', 'largest free'],
                 ['waiting_bytes', 'waiting']];
  const rest = Math.max(of.mapped_bytes - of.largest_free_bytes - of.waiting_bytes, 0);
  const calls = `; ${counted(of.allocations, 'allocation')} with ${counted(of.driver_calls, 'driver call')}, ` +
                `${counted(of.moved_pieces, 'piece')} moved`;
  return make('div', {class: 'row'}, make('p', {}, kindTag(kind), amounts(place, of, names), calls),
    barOf(place, Math.max(of.mapped_peak_bytes, of.mapped_bytes, 1), [
      {name: 'used_part', value: rest, title: 'live, and small free extents', color: kindColor(kind)},
      {name: 'waiting_part', value: of.waiting_bytes, title: 'freed, the device may still use it', class: 'free'},
      {name: 'largest_part', value: of.largest_free_bytes, title: 'largest free extent', class: 'largest_free'},
      {name: 'back_part', value: of.mapped_peak_bytes - of.mapped_bytes, title: 'unmapped', class: 'back'}]));
}

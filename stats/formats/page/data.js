// The reports: unpacked, with the sums that the page shows of one process or of all of them together.

const kLost = ['lost', 'indirectly lost', 'held only by the driver'];
// The classes in words, the worst first.
const kClasses = new Map([
  ['lost', 'lost'], ['indirectly lost', 'indirectly lost'], ['held only by the driver', 'driver-held'],
  ['possibly lost', 'possibly lost'], ['unclassified', 'unclassified'], ['never freed', 'never freed'],
  ['never freed, went with its context', 'never freed, context destroyed'], ['live', 'live'],
  ['reachable', 'reachable']]);
const kSeverities = new Map([...kClasses.keys()].map((name, i) => [name, i]));
const severity = row => kSeverities.get(row.class) ?? kClasses.size;
const isLost = row => kLost.includes(row.class);

async function unpacked(base64) {
  const packed = Uint8Array.from(atob(base64), character => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  const data = JSON.parse(await new Response(stream).text());
  data.frames ??= [];
  data.stacks ??= [];
  data.hints ??= [];
  for (const frame of data.frames) describeFrame(frame);
  if (data.reports) for (const report of data.reports) completeReport(report, data.stacks);
  else completeChanges(data);
  return data;
}

const longPlace = frame => frame.file ? `${frame.file}:${frame.line}`
                         : frame.module ? `${frame.module}+${hex(frame.offset)}`
                         : `${hex(frame.address)} (generated code)`;
function describeFrame(frame) {
  const module = frame.module ? fileName(frame.module) : '';
  frame.place = frame.file ? fileName(frame.file) + (frame.line ? `:${frame.line}` : '')
              : module ? `${module}+${hex(frame.offset)}` : hex(frame.address);
  frame.name = frame.function ?? frame.place;
  frame.key = `${frame.name}|${frame.file ?? frame.module}`;
  frame.text = `${frame.name} ${frame.file ?? ''} ${frame.module ?? ''}`.toLowerCase();
}

// Members that are empty are not in the data. The sums of rows that were left out stand at the end of their lists: rows
// without a stack, which have `list`.
function completeReport(report, stacks) {
  const of_rows = ['leaks', 'at_peak', 'in_loops', 'growing', 'transfers', 'copy_sites', 'waits', 'staging', 'others'];
  for (const list of [...of_rows, 'device_memory', 'device_ranges', 'frameworks', 'estimated']) report[list] ??= [];
  for (const part of ['kinds', 'fragmentation', 'host_classes']) report[part] ??= {};
  for (const row of of_rows.flatMap(list => report[list])) row.kind ??= '', row.class ??= '', row.direction ??= '';
  for (const kind of Object.values(report.kinds)) {
    const {interval_s, least = [], last = []} = kind.live_over_time ?? {};
    if (!interval_s || !last.length || least.length !== last.length) delete kind.live_over_time;
  }
  if (report.recording) for (const part of ['sites', 'moments', 'missing']) report.recording[part] ??= [];
  for (const moment of report.recording?.moments ?? []) moment.uses ??= [];  // nothing was live
  for (const row of report.leaks) {
    row.sites = stacks[row.frames].length ? 1 : 0;
    row.by_library = Boolean(row.owner) && !row.program;
  }
  for (const other of report.others) {
    if (other.list === 'leaks') report.leaks.push({...other, sites: other.rows, first_s: 0, last_s: Infinity});
    if (other.list === 'at_peak') report.at_peak.push({...other, peak_bytes: other.bytes, peak_blocks: other.blocks});
  }
}

const processName = report => {
  const {rank, ranks, pid, command} = report.cistern;
  const name = rank === undefined ? '' : `rank ${rank}${ranks === undefined ? '' : `/${ranks}`}  `;
  return `${name}pid ${pid}  ${fileName((command ?? '').split(' ')[0])}`;
};
const endedByItself = report => ['exit', '_exit'].includes(report.cistern.moment);

// --- What is shown of some processes: figures of kinds are added up, rows are those of all

function scopeOf(reports) {
  const single = reports.length === 1 ? reports[0] : undefined;
  const rowsOf = list => reports.flatMap(report => report[list]);
  return {
    reports, single,
    kinds: single ? single.kinds : summed(reports.map(report => report.kinds), addKind),
    fragmentation: single ? single.fragmentation
                          : summed(reports.map(report => report.fragmentation), addFragmentation),
    host_classes: summed(reports.map(report => report.host_classes), addCounts),
    estimated: new Set(rowsOf('estimated')),
    leaks: rowsOf('leaks'), at_peak: rowsOf('at_peak'), in_loops: rowsOf('in_loops'), growing: rowsOf('growing'),
    transfers: single ? single.transfers : mergedTransfers(rowsOf('transfers')),
    copy_sites: rowsOf('copy_sites'), waits: rowsOf('waits'),
    staging: single ? single.staging : mergedStaging(rowsOf('staging')),
    device_memory: single ? single.device_memory : [], device_ranges: rowsOf('device_ranges'),
    wall_s: greatest(reports, report => report.cistern.wall_s),
    moments: single?.recording?.moments ?? [],  // of several processes: each has its own second 0
  };
}

// What was live at a moment of a recording, as rows by call site.
function rowsAt(moment, {sites}) {
  return Array.from({length: moment.uses.length / 3}, (_, i) => {
    const [site, blocks, bytes] = moment.uses.slice(3 * i, 3 * i + 3), {kind, api, frames, others} = sites[site];
    return others ? {kind, blocks, bytes, list: 'moments', rows: undefined} : {kind, api, frames, blocks, bytes};
  });
}
const momentName = ({at_s, peak_of}) => `live at ${duration(at_s)}${peak_of ? `, the peak of ${peak_of}` : ''}`;

function summed(parts, add) {
  const sums = {};
  for (const part of parts)
    for (const [name, value] of Object.entries(part))
      sums[name] = name in sums ? add(sums[name], value) : structuredClone(value);
  return sums;
}

function addCounts(sum, more) {
  for (const [name, value] of Object.entries(more)) if (typeof value === 'number') sum[name] = (sum[name] ?? 0) + value;
  return sum;
}

function addKind(sum, more) {
  const peak_bytes = Math.max(sum.peak_bytes, more.peak_bytes);  // a sum would be of a moment that never was
  addCounts(sum, more);
  sum.peak_bytes = peak_bytes;
  delete sum.peak_at_s;
  sum.pooled ||= more.pooled;
  for (const [reason, count] of Object.entries(more.unpooled ?? {}))
    (sum.unpooled ??= {})[reason] = (sum.unpooled[reason] ?? 0) + count;
  sum.live_over_time = addLevels(sum.live_over_time, more.live_over_time);
  sum.classes = addRows(sum.classes, more.classes, 'sizes');
  sum.sizes = addRows(sum.sizes, more.sizes, 'block_bytes');
  return sum;
}

function addRows(sum = [], more = [], key) {
  for (const row of more) {
    const same = sum.find(other => other[key] === row[key]);
    if (!same) sum.push({...row});
    else for (const [name, value] of Object.entries(row)) if (name !== key) same[name] += value;
  }
  return sum;
}

function addFragmentation(sum, more) {
  const largest = Math.max(sum.largest_free_bytes, more.largest_free_bytes);
  for (const part of ['internal', 'external', 'reserved_per_live', 'worst']) delete sum[part];
  addCounts(sum, {...more, internal: undefined, external: undefined, reserved_per_live: undefined});
  sum.largest_free_bytes = largest;
  return sum;
}

// The level of a moment. Before the first interval nothing was live; behind the last it stays.
function levelAt(levels, at_s, which) {
  if (!levels || at_s < levels.start_s) return 0;
  const at = Math.min(Math.floor((at_s - levels.start_s) / levels.interval_s), levels.last.length - 1);
  return levels[which][at];
}

function addLevels(one, other) {
  if (!one || !other) return one ?? structuredClone(other);
  const kIntervals = 128;
  const end = of => of.start_s + of.interval_s * of.last.length;
  const start_s = Math.min(one.start_s, other.start_s);
  const interval_s = Math.max((Math.max(end(one), end(other)) - start_s) / kIntervals, 1e-6);
  const sums = which => Array.from({length: kIntervals}, (_, i) => {
    const at_s = start_s + interval_s * (i + 0.5);
    return levelAt(one, at_s, which) + levelAt(other, at_s, which);
  });
  return {start_s, interval_s, least: sums('least'), last: sums('last')};
}

function mergedTransfers(rows) {
  const sums = new Map();
  for (const row of rows) {
    const key = [row.kind, row.direction, row.pageable, row.asynchronous].join();
    const sum = sums.get(key);
    if (!sum) sums.set(key, {...row, bytes_per_s_p50: undefined, bytes_per_s_p95: undefined, efficiency: undefined});
    else for (const name of ['count', 'bytes', 'failed', 'seconds'])
      if (row[name] !== undefined) sum[name] = (sum[name] ?? 0) + row[name];
  }
  return [...sums.values()].sort((a, b) => b.bytes - a.bytes);
}

// Rows that only differ in their process are one.
function rowsOnce(scope, rows) {
  if (scope.single) return rows;
  const sums = new Map(), added = ['blocks', 'bytes', 'peak_blocks', 'peak_bytes', 'allocations', 'temporary',
                                   'count', 'seconds', 'kept_parent_bytes'];
  for (const row of rows) {
    const key = [row.kind, row.class, row.frames, row.api, row.object, row.suppressed, row.list, row.by_library,
                 row.direction, row.pageable, row.asynchronous].join('|');
    const sum = sums.get(key);
    if (!sum) { sums.set(key, {...row}); continue; }
    for (const name of added) if (row[name] !== undefined) sum[name] = (sum[name] ?? 0) + row[name];
    if (row.first_s === undefined) continue;
    sum.first_s = Math.min(sum.first_s, row.first_s), sum.last_s = Math.max(sum.last_s, row.last_s);
  }
  return [...sums.values()];
}

function mergedStaging(rows) {
  const sums = new Map();
  for (const row of rows) {
    const key = [row.device, row.direction, row.source].join(), sum = sums.get(key);
    if (!sum) { sums.set(key, structuredClone(row)); continue; }
    for (const name of ['staged_copies', 'staged_bytes', 'passed_on_bytes']) sum[name] += row[name];
    sum.passed_on = addCounts(sum.passed_on ?? {}, row.passed_on ?? {});
  }
  return [...sums.values()];
}

// --- The verdict: memory of the GPU by its worst class

// {lost, possible, unjudged, reachable}: each {blocks, bytes, sites} of rows that no rule suppresses.
function verdictSums(rows) {
  const none = () => ({blocks: 0, bytes: 0, sites: 0, kept: 0});
  const sums = {lost: none(), possible: none(), unjudged: none(), reachable: none()};
  for (const row of rows) {
    const part = isLost(row) ? 'lost' : row.class === 'possibly lost' ? 'possible'
               : row.class === 'reachable' ? 'reachable' : 'unjudged';
    sums[part].blocks += row.blocks, sums[part].bytes += row.bytes, sums[part].sites += row.sites;
    sums[part].kept += row.kept_parent_bytes ?? 0;
  }
  return sums;
}
const usedGpu = scope => scope.reports.some(report => report.cistern.gpu_memory_used);
const gpuLeaks = scope => scope.leaks.filter(row => row.kind !== 'host' && !row.suppressed);

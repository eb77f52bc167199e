// Transfers, the call sites that copy and wait most, bounce buffers; and what the page says of its own figures.

const hostMemory = row => row.pageable === undefined ? '' : row.pageable ? 'pageable' : 'pinned';
const wayOf = row => [hostMemory(row), row.asynchronous ? 'async' : ''].filter(Boolean).join(', ');

function showCopies(scope, data) {
  const kSites = 8;
  const parts = scope.transfers.length ? [transferTable(scope.transfers)] : [];
  const most = (rows, value) => [...rows].sort((a, b) => value(b) - value(a)).slice(0, kSites);
  parts.push(...siteDetails('Copied most', most(rowsOnce(scope, scope.copy_sites), row => row.bytes), data, row =>
    [bytesFigure('copy_sites.bytes', row.bytes), ` ${[row.direction, wayOf(row)].filter(Boolean).join(', ')}`,
     row.seconds === undefined ? '' : `, blocked for ${duration(row.seconds)}`]));
  parts.push(...siteDetails('Waited for a device', most(scope.waits, row => row.seconds), data, row =>
    [figure('waits.seconds', row.seconds, duration(row.seconds)), ` in ${counted(row.count, 'call')}`]));
  const staged = scope.staging.filter(row => row.staged_copies || row.passed_on_bytes);
  if (staged.length) parts.push(make('h3', {}, 'Bounce buffers'), list(staged.map(stagingLine)));
  section('copies').replaceChildren(...parts.length ? parts : [note('No copies, and no waits for a device.')]);
}

function transferTable(rows) {
  const column = (title, name, show) => figureColumn(title, () => `transfers.${name}`, row => row[name], show);
  return tableOf([
    {title: 'direction', cell: row => row.direction}, {title: 'host memory', cell: wayOf}, column('copies', 'count'),
    column('bytes', 'bytes', bytes), column('blocked for', 'seconds', duration),
    column('median', 'bytes_per_s_p50', rate), column('vs best', 'efficiency', percent)], rows);
}

function stagingLine(row) {
  const reasons = listed(row.passed_on);
  return [`device ${row.device}, ${row.direction}: `, bytesFigure('staging.staged_bytes', row.staged_bytes),
          ` in ${counted(row.staged_copies, 'copy', 'copies')} through them, `,
          bytesFigure('staging.passed_on_bytes', row.passed_on_bytes),
          ` left to the driver${reasons ? ` (${reasons})` : ''}`];
}

function siteDetails(title, rows, data, amount) {
  if (!rows.length) return [];
  return [make('h3', {}, title), ...rows.map(row => make('details', {},
    make('summary', {}, amount(row), '  ', siteName(row, data)), stackList(stackOf(row, data))))];
}

// --- Notes

function leftOutLines(scope, data) {
  const others = scope.reports.flatMap(report => report.others), lines = [];
  const rows = sumOf(others, of => of.rows), left_out = data.processes - data.reports.length;
  if (rows) lines.push(['Left out of this page, to keep it small: ',
                        figure('left_out.rows', rows, counted(rows, 'row')), ' by call site, the smallest, of ',
                        bytesFigure('left_out.bytes', sumOf(others, of => of.bytes)),
                        '. They are in the sums, without their stacks.']);
  if (left_out) lines.push(['Left out of this page, and of its sums: ',
                            figure('left_out.processes', left_out, grouped(left_out)),
                            ` of ${counted(data.processes, 'process', 'processes')}, those with least live memory.`]);
  return lines;
}

function recordingLines({recording}) {
  if (!recording) return [];
  const kept = recording.moments.length;
  return [[`From a recording of ${counted(recording.events, 'event')} (${bytes(recording.file_bytes)}). `,
           kept ? [`Its ${counted(kept, 'moment')}`, recording.others
             ? [' have the call sites that held most at any of them; ',
                figure('recording.others', recording.others, counted(recording.others, 'other')), ' are sums by kind.']
             : ' have all call sites.'] : 'Its moments are left out of this page, to keep it small.']];
}

function judgingLines({judging = {}}) {
  return [
    judging.why_not && `Which blocks the program can still reach is not known: ${judging.why_not}.`,
    judging.unseen_threads && `The registers of ${counted(judging.unseen_threads, 'other thread')} were not seen.`,
    judging.unreadable_bytes && `${bytes(judging.unreadable_bytes)} of memory could not be read.`].filter(Boolean);
}

function showNotes(scope, data) {
  const without = scope.reports.map(report => report.host_without_site).filter(Boolean);
  const frameworks = new Set(scope.reports.flatMap(report => report.frameworks));
  const modes = new Set(scope.reports.map(report => report.sites?.mode).filter(Boolean));
  section('notes').replaceChildren(list([
    ...leftOutLines(scope, data), ...scope.reports.flatMap(recordingLines),
    ...new Set(scope.reports.flatMap(judgingLines)),
    ...[...frameworks].map(name => `${name} has a memory cache of its own: memory in it counts as live.`),
    ...without.length ? [['Live host memory without a call site: ',
                          bytesFigure('host_without_site.bytes', sumOf(without, of => of.bytes)), '.']] : [],
    ...scope.estimated.size ? [`Estimates: ${[...scope.estimated].join(', ')}.`] : [],
    ...scope.single ? [] : ['Figures of several processes are added up. Each process has its own start as second 0, ' +
                            'and peaks may have been at different times.'],
    `Call sites: ${[...modes].join('; ') || 'none'}. Sizes are in powers of 1024. Cistern ${data.version}.`]));
}

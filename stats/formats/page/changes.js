// Two runs beside each other: each call site before and after. What a row and a box of the flame graph are here is
// {before: {bytes, blocks}, after: {bytes, blocks}}; a box is as wide as the larger side of each site in it.

const kSides = ['before', 'after'];
const growthOf = of => of.after.bytes - of.before.bytes;
const signed = value => value ? `${value > 0 ? '+' : '-'}${bytes(Math.abs(value))}` : '0 B';

// As `cistern diff` says it.
function changeOf({before, after}) {
  if (!before.blocks && after.blocks) return 'new';
  if (before.blocks && !after.blocks) return 'gone';
  if (before.bytes !== after.bytes) return before.bytes < after.bytes ? 'grown' : 'shrunk';
  return before.blocks !== after.blocks ? 'other blocks' : 'unchanged';
}
const kChanges = ['new', 'grown', 'other blocks', 'unchanged', 'shrunk', 'gone'];
const changeSquare = change => {
  const square = make('i', {class: 'swatch', 'data-change': change});
  square.style.background = changeColor(change, 1);
  return square;
};

// --- The views

// As kReportView. A row's `of` is its call site, with all figures.
const kChangeView = {
  list: 'leaks', weight: row => Math.max(row.before.bytes, row.after.bytes), facts: changeFacts,
  rows(scope) {
    const sites = scope.sites.filter(of => kSides.some(side => of[side][this.figures[1]]));
    return sites.map(of => ({...of, of, before: figuresOf(of.before, this.figures),
                             after: figuresOf(of.after, this.figures)}));
  },
  columns(table) { return changeColumns(table, this); },
  add(node, row) {
    for (const side of kSides) {
      node[side] ??= {bytes: 0, blocks: 0};
      node[side].bytes += row[side].bytes, node[side].blocks += row[side].blocks;
    }
  },
  color: node => changeColor(changeOf(node), Math.abs(growthOf(node)) / node.value),
  label: node => signed(growthOf(node)),
  said(node) { return sidesInWords(node, this); },
  legend() { return changeLegend(this); },
  found: nodes => `${signed(sumOf(nodes, growthOf))} in what matches`,
};
const figuresOf = (of, [name, blocks]) => ({bytes: of[name], blocks: of[blocks]});

const kChangeViews = [
  {id: 'live', title: 'Live at the end', note: 'All memory that was not freed, lost or not.',
   figures: ['bytes', 'blocks']},
  {id: 'lost', title: 'Lost', note: 'Memory that nothing of the program leads to any more.',
   figures: ['lost_bytes', 'lost_blocks']},
  {id: 'peak', title: 'At the peak', figures: ['peak_bytes', 'peak_blocks'], list: 'at_peak', is_partial: true,
   words: {new: 'named after only', gone: 'named before only'},
   note: 'A report names the three call sites of each kind that held most of its peak. A call site that only one of ' +
         'the reports names had less in the other. Sums are of the call sites that are named.'},
].map(view => ({...kChangeView, ...view}));

// A peak that only one report names is at most so much more than in the other.
const isKnown = (side, view) => !view.is_partial || side.blocks > 0;
const isHalfKnown = (of, view) => kSides.some(side => !isKnown(of[side], view));
const growthInWords = (of, view) => (isHalfKnown(of, view) ? 'up to ' : '') + signed(growthOf(of));
const changeInWords = (change, view) => view.words?.[change] ?? change;
function sideInWords(of, view) {
  return isKnown(of, view) ? `${bytes(of.bytes)} in ${counted(of.blocks, 'block')}` : 'not named';
}
function sidesInWords(of, view) {
  return `${growthInWords(of, view)} (${changeInWords(changeOf(of), view)}):  ` +
         `${sideInWords(of.before, view)} before, ${sideInWords(of.after, view)} after`;
}
const changeLegend = view => make('p', {class: 'legend'}, ['new', 'grown', 'unchanged', 'shrunk', 'gone'].flatMap(
  change => [changeSquare(change), changeInWords(change, view)]));

// --- The table

function changeColumns(table, view) {
  const about = row => scope.estimated.has(`${view.list}.${row.kind}`) ? 'about ' : '';
  const most = Math.max(greatest(table.rows, row => row.list ? 0 : Math.abs(growthOf(row))), 1);
  const growth = row => {
    const bar = make('i', {class: 'bar strong'});
    bar.style.width = `${100 * Math.abs(growthOf(row)) / most}%`;
    bar.style.background = changeColor(changeOf(row), 1);
    return [bar, figure('site.change', growthOf(row), about(row) + growthInWords(row, view))];
  };
  const sideColumn = name => ({
    title: name, class: 'number optional', key: row => row[name].bytes,
    cell: row => !isKnown(row[name], view) ? '-'
      : figure(`site.${name}`, row[name].bytes, about(row) + bytes(row[name].bytes))});
  return [
    {title: 'change', class: 'number', key: growthOf, cell: growth},
    sideColumn('before'), sideColumn('after'),
    {title: '', label: 'kind of change', smallest_first: true, key: row => kChanges.indexOf(changeOf(row)),
     cell: row => make('span', {class: 'change'}, changeSquare(changeOf(row)), changeInWords(changeOf(row), view))},
    table.kindColumn(), table.siteColumn()];
}

function changeFacts({of, list}) {
  const line = view => {
    const sides = kSides.map(side => figuresOf(of[side], view.figures));
    return sides.some(side => side.blocks) &&
      `${view.title.toLowerCase()} ${sides.map(side => sideInWords(side, view)).join(' \u2192 ')}`;
  };
  return [of.api, ...list ? [] : kChangeViews.map(line)];
}

// --- The verdict

function showChangeVerdict(scope, data, openSite) {
  const {level, text, view, is_shown} = changeHeadline(data);
  const parts = [['gpu_lost', 'lost on the GPU'], ['gpu_live', 'live on the GPU'],
                 ['host_lost', 'lost on the host'], ['host_live', 'live on the host']];
  const lines = [...parts.flatMap(([part, title]) => growthLines(data.growth[part], part, title)),
                 ...warningLines(data), ...kSides.map(side => sideLine(data[side], side))];
  section('verdict').className = level;
  section('verdict').replaceChildren(make('div', {}, make('p', {class: 'headline'}, text), list(lines)),
                                     largestGrowths(scope, data, view, is_shown, openSite));
}

// What grew and is worst: lost before live; of the GPU where it was used. {level, text, view, is_shown}
function changeHeadline({growth, before, after}) {
  const uses_gpu = before.gpu_memory_used || after.gpu_memory_used;
  const family = uses_gpu ? 'gpu' : 'host', where = uses_gpu ? ' on the GPU' : '';
  const is_shown = row => (row.kind !== 'host') === uses_gpu;
  const view = id => kChangeViews.find(of => of.id === id);
  for (const [part, level] of [['lost', 'bad'], ['live', 'warn']]) {
    const {grown_bytes, grown_sites} = growth[`${family}_${part}`];
    if (grown_bytes)
      return {level, is_shown, view: view(part),
              text: [figure('verdict.grown', grown_bytes, signed(grown_bytes)), ` ${part}${where} at `,
                     figure('verdict.sites', grown_sites, counted(grown_sites, 'site'))]};
  }
  const {host_lost, host_live} = growth;
  if (host_lost.grown_bytes || host_live.grown_bytes)  // of a program that uses the GPU
    return {level: 'neutral', text: 'nothing grew on the GPU', is_shown: row => row.kind === 'host',
            view: view(host_lost.grown_bytes ? 'lost' : 'live')};
  return {level: 'good', text: 'nothing grew', is_shown, view: view('live')};
}

function growthLines(of, part, title) {
  if (!of.before_bytes && !of.after_bytes) return [];
  const place = name => `growth.${part}.${name}`;
  const moved = (name, sign) => !of[`${name}_sites`] ? [] : [
    figure(place(`${name}_bytes`), of[`${name}_bytes`], signed(sign * of[`${name}_bytes`])), ' at ',
    figure(place(`${name}_sites`), of[`${name}_sites`], counted(of[`${name}_sites`], 'site')), ', '];
  const changes = [...moved('grown', 1), ...moved('shrunk', -1)];
  return [[`${title}: `, changes.length ? changes : 'unchanged, ',
           bytesFigure(place('before_bytes'), of.before_bytes), ' \u2192 ',
           bytesFigure(place('after_bytes'), of.after_bytes)]];
}

function warningLines({before, after}) {
  const modes = [before, after].map(side => side.site_modes.join('; '));
  const warning = text => make('span', {class: 'warn'}, text);
  return [
    before.processes !== after.processes &&
      warning(`${counted(before.processes, 'process', 'processes')} before, ${grouped(after.processes)} after`),
    modes[0] !== modes[1] && modes.every(Boolean) &&
      warning(`the runs knew different call sites: ${modes[0]} before, ${modes[1]} after`),
    ...kSides.flatMap(name => ({before, after})[name].missing.map(sentence => warning(`${name}: ${sentence}`)))
  ].filter(Boolean);
}

const sideLine = (of, side) => make('span', {class: 'faint'}, `${side}: `, make('span', {class: 'mono'},
  shortened(of.command ?? '')), of.processes === 1 ? '' : ` and others, ${grouped(of.processes)} processes`,
  `, ran for ${seconds(of.wall_s)}`);

function largestGrowths(scope, data, view, is_shown, openSite) {
  const rows = view.rows(scope).filter(row => is_shown(row) && !row.list && growthOf(row) > 0)
    .sort((one, other) => growthOf(other) - growthOf(one));
  return siteButtons('Largest growths', rows, data, openSite, {
    value: growthOf, color: row => changeColor(changeOf(row), 1),
    amount: row => figure('largest.change', growthOf(row), signed(growthOf(row)))});
}

// --- Kinds, and what the page says of itself

function showChangedKinds({kinds}) {
  const place = (name, of) => ({kind}) => `kinds.${kind}.${name}.${of}`;
  const columns = (name, title, show, change) => [
    ...kSides.map(side => figureColumn(`${title} ${side}`, place(name, side), row => row[side][name], show)),
    figureColumn('change', place(name, 'change'), row => row.after[name] - row.before[name], change)];
  const count = value => value > 0 ? `+${grouped(value)}` : value < 0 ? `-${grouped(-value)}` : '0';
  section('kinds').replaceChildren(tableOf([
    {title: 'kind', cell: ({kind}) => kindTag(kind)}, ...columns('live_bytes', 'live', bytes, signed),
    ...columns('live_blocks', 'blocks', grouped, count), ...columns('peak_bytes', 'peak', bytes, signed)], kinds));
}

function showChangeNotes(scope, {others, before, after, version}) {
  const rows = sumOf(others, of => of.rows), has_several = before.processes > 1 || after.processes > 1;
  const modes = new Set([before, after].flatMap(side => side.site_modes));
  section('notes').replaceChildren(list([
    ...rows ? [['Left out of this page, to keep it small: ', figure('left_out.rows', rows, counted(rows, 'call site')),
                ', those that changed least. They are in the sums, without their stacks.']] : [],
    'A call site is the same in both runs if its functions have the same names, up to six of them, wherever their ' +
      'lines are. Suppressed call sites are left out; the kinds of memory have them.',
    ...scope.estimated.size ? [`Estimates: ${[...scope.estimated].join(', ')}.`] : [],
    ...has_several ? ['Figures of several processes are added up. The peak of a kind is the largest of a process.']
                   : [],
    `Call sites: ${[...modes].join('; ') || 'none'}. Sizes are in powers of 1024. Cistern ${version}.`]));
}

// --- The data

// Members that are empty are not in the data. The sums of sites that were left out stand at the end: sites without a
// stack, which have `list`.
function completeChanges(data) {
  for (const name of ['kinds', 'sites', 'others']) data[name] ??= [];
  for (const side of kSides) data[side].site_modes ??= [], data[side].estimated ??= [], data[side].missing ??= [];
  for (const of of [...data.kinds, ...data.sites, ...data.others]) of.kind ??= '';
  for (const frame of data.frames)  // a box of the flame graph is a name that call sites are matched by
    frame.key = frame.name = frame.function ?? (frame.module ? fileName(frame.module) : 'generated code');
  for (const other of data.others) data.sites.push({...other, list: 'sites'});
}

const changePage = {
  views: kChangeViews, without: ['time', 'pools'],
  command: () => kSides.map(side => data[side].name).join('  \u2192  '),
  scopes: () => [],
  scope: () => ({sites: data.sites, single: true, kinds: {}, wall_s: 0, moments: [],
                 estimated: new Set(kSides.flatMap(side => data[side].estimated))}),
  firstView: () => changeHeadline(data).view,
  show() {
    showChangeVerdict(scope, data, openSite);
    showChangedKinds(data);
    showChangeNotes(scope, data);
  },
};

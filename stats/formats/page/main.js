// The state of the page - which processes, which memory, which kinds, which time, which words - and what changes it.

const kViews = [
  {id: 'lost', title: 'Lost', note: 'Memory that nothing of the program leads to any more.', classes: true,
   rows: scope => scope.leaks.filter(row => isLost(row) && !row.suppressed)},
  {id: 'live', title: 'Live at the end', note: 'All memory that was not freed, lost or not.', classes: true,
   rows: scope => scope.leaks},
  {id: 'peak', title: 'At the peak', note: 'The call sites that held most of each kind\u2019s peak.',
   rows: scope => scope.at_peak, weight: row => row.peak_bytes, blocks: row => row.peak_blocks},
  {id: 'growing', title: 'Growing', note: 'Memory that still grew when the exit began: by how much.',
   rows: scope => scope.growing, blocks: () => 0},
  {id: 'loops', title: 'In loops', note: 'Allocations that were mostly freed by the very next call: each call takes time.',
   rows: scope => scope.in_loops, weight: row => row.allocations ?? 0, blocks: row => row.temporary ?? 0, counts: true},
].map(view => ({weight: row => row.bytes, blocks: row => row.blocks, show: view.counts ? grouped : bytes, ...view}));

const state = {view: kViews[0], kind: undefined, time: undefined, pattern: ''};
let data, scope, flame, table, timeline;

const byId = id => document.getElementById(id);

function rowsShown() {
  const matches = row => [row.kind, row.class, row.api, row.owner, row.object].some(text => text?.toLowerCase().includes(state.pattern)) ||
                         stackOf(row, data).some(frame => frame.text.includes(state.pattern));
  const inTime = row => !state.time || row.first_s === undefined || (row.first_s <= state.time[1] && row.last_s >= state.time[0]);
  const rows = state.view.rows(scope).filter(row => (!state.kind || row.kind === state.kind) && inTime(row));
  const merged = scope.reports.length > 1 ? mergedRows(rows) : rows;
  return {all: merged, matching: state.pattern ? merged.filter(matches) : [...merged]};
}

function showSites() {
  const {all, matching} = rowsShown();
  flame.pattern = state.pattern;
  flame.show(flameTree(all, state.view, data), state.view);
  table.show(matching, state.view);
  byId('view_note').textContent = state.view.note;
  byId('time_filter').replaceChildren(...state.time ? [make('button', {type: 'button', class: 'chosen', onclick: () => timeline.set(undefined)},
    `allocated ${seconds(state.time[0])} to ${seconds(state.time[1])} \u2715`)] : []);
  showChoices();
}

function showChoices() {
  const button = (text, chosen, click, attributes) => make('button', {type: 'button', 'aria-pressed': String(chosen), onclick: click, ...attributes}, text);
  byId('views').replaceChildren(...kViews.filter(view => ['lost', 'live', 'peak'].includes(view.id) || view.rows(scope).length).map(view =>
    button(view.title, view === state.view, () => { state.view = view; state.kind = undefined; showSites(); }, {'data-view': view.id})));
  const kinds = [...new Set(state.view.rows(scope).map(row => row.kind))].sort((a, b) => (a === 'host') - (b === 'host') || (a < b ? -1 : 1));
  byId('kind_filter').replaceChildren(...kinds.length < 2 ? [] : [undefined, ...kinds].map(kind =>
    button(kind ? [swatch(kind), kind] : 'all kinds', kind === state.kind, () => { state.kind = kind; showSites(); }, {'data-kind-filter': kind ?? ''})));
}

// What a stranger should see first: leaks, of the GPU where it was used; without leaks what the memory was for.
function firstView() {
  const view = id => kViews.find(of => of.id === id), gpu = gpuLeaks(scope);
  const used = scope.reports.some(report => report.cistern.gpu_memory_used);
  if ((used ? gpu : scope.leaks).some(isLost)) return view('lost');
  return gpu.length || !scope.at_peak.length ? view('live') : view('peak');
}

function openSite(row) {
  state.view = kViews.find(view => view.rows(scope).some(other => other.frames === row.frames && other.class === row.class)) ?? state.view;
  Object.assign(state, {kind: undefined, time: undefined, pattern: ''});
  byId('search').value = '';
  timeline.range = undefined;
  timeline.draw();
  showSites();
  table.open(table.rows.find(other => ['kind', 'class', 'frames', 'api', 'object'].every(name => other[name] === row[name])));
}

function showScope(chosen) {
  const reports = chosen === 'all' ? data.reports : [data.reports[Number(chosen)]];
  scope = scopeOf(reports);
  Object.assign(state, {view: firstView(), kind: undefined, time: undefined});
  byId('scope').value = chosen;
  byId('command').textContent = scope.single ? scope.single.cistern.command ?? '' : counted(reports.length, 'process').replace('sss', 'sses');
  timeline.show(scope);
  showSections();
  showSites();
}

function showSections() {
  showVerdict(scope, openSite, report => showScope(String(data.reports.indexOf(report))), data);
  showKinds(scope);
  showFragmentation(scope);
  showCopies(scope, data);
  showNotes(scope, data);
}

// What is drawn has the theme's colours in it.
function redraw() {
  timeline.draw();
  showSections();
  flame.draw();
  table.draw();
  showChoices();
}

function listen() {
  byId('scope').addEventListener('change', event => showScope(event.target.value));
  byId('theme').addEventListener('click', () => { document.documentElement.dataset.theme = theme.dark ? 'light' : 'dark'; redraw(); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  byId('search').addEventListener('input', event => { state.pattern = event.target.value.trim().toLowerCase(); showSites(); });
  addEventListener('resize', () => { timeline.draw(); flame.draw(); });
  document.addEventListener('keydown', event => {
    if (event.key === '/' && event.target.tagName !== 'INPUT') byId('search').focus(), event.preventDefault();
    if (event.key !== 'Escape') return;
    byId('search').value = state.pattern = '';
    document.activeElement.blur();
    timeline.set(undefined);
  });
  // Paper is white.
  let before;
  addEventListener('beforeprint', () => { before = document.documentElement.dataset.theme; document.documentElement.dataset.theme = 'light'; redraw(); });
  addEventListener('afterprint', () => {
    if (before) document.documentElement.dataset.theme = before; else delete document.documentElement.dataset.theme;
    redraw();
  });
}

function fail(error) {
  byId('failure').hidden = false;
  byId('failure').textContent = `This page could not be shown: ${error?.message ?? error}. It needs a browser of 2023 or newer.`;
}

async function start() {
  data = await unpacked(byId('data').textContent.trim());
  document.querySelector('main').hidden = false;
  timeline = new Timeline(section('time'), range => { state.time = range; showSites(); });
  flame = new FlameGraph(byId('flame'), byId('flame_status'), byId('path'));
  table = new SiteTable(byId('table'), data);
  const menu = data.reports.map((report, i) => make('option', {value: String(i)}, processName(report)));
  byId('scope').replaceChildren(...menu.length > 1 ? [make('option', {value: 'all'}, `all ${menu.length} processes together`)] : [], ...menu);
  byId('scope').hidden = menu.length < 2;
  listen();
  showScope(menu.length > 1 ? 'all' : '0');
  document.documentElement.dataset.ready = 'yes';
}

addEventListener('error', event => fail(event.error ?? event.message));
addEventListener('unhandledrejection', event => fail(event.reason));
start();

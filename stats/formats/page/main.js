// The state of the page - which processes, which memory, which kind, which time, which words - and what changes it.

// A view of one run. Its rows are of the report's list `list`; `node` is a box of the flame graph.
const kReportView = {
  is_shown: () => true, show: bytes, weight: row => row.bytes, blocks: row => row.blocks,
  rows(scope) { return scope[this.list].filter(this.is_shown); },
  facts: siteFacts,
  add(node, row) { node.blocks = (node.blocks ?? 0) + (this.blocks?.(row) ?? 0); },
  color: node => node.frame ? frameColor(node.kind, node.name) : node.kind ? kindColor(node.kind) : theme.color('line'),
  colorOn: node => !node.frame && node.kind ? 'on_kind' : 'text',
  label(node) { return this.show(node.value); },
  said(node, root) {
    const blocks = this.blocks && !this.counts ? ` in ${counted(node.blocks, 'block')}` : '';
    return `${this.show(node.value)}${blocks}, ${percent(node.value / root.value)} of ${this.show(root.value)}`;
  },
  found(nodes, top) {
    const sum = sumOf(nodes, node => node.value);
    return `${this.show(sum)}, ${percent(sum / top.value)}`;
  },
};
const kViews = [
  {id: 'lost', title: 'Lost', note: 'Memory that nothing of the program leads to any more.',
   list: 'leaks', classes: true, is_shown: row => isLost(row) && !row.suppressed},
  {id: 'live', title: 'Live at the end', note: 'All memory that was not freed, lost or not.',
   list: 'leaks', classes: true},
  {id: 'peak', title: 'At the peak', note: 'The call sites that held most of each kind\u2019s peak.',
   list: 'at_peak', weight: row => row.peak_bytes, blocks: row => row.peak_blocks},
  {id: 'growing', title: 'Growing', note: 'Memory that still grew when the exit began: by how much.',
   list: 'growing', blocks: undefined, optional: true},
  {id: 'loops', title: 'In loops', note: 'Allocations that were mostly freed by the very next call.',
   list: 'in_loops', weight: row => row.allocations ?? 0, blocks: row => row.temporary ?? 0, counts: true,
   show: grouped, optional: true},
  {id: 'moment', title: 'At a moment', optional: true,
   note: 'What was live at the moment that is chosen above, of this recording.',
   rows: scope => state.moment === undefined ? [] : rowsAt(scope.moments[state.moment], scope.single.recording)},
].map(view => ({...kReportView, ...view}));

const state = {view: undefined, kind: undefined, time: undefined, moment: undefined, pattern: ''};
let data, page, scope, flame, table, timeline;

const byId = id => document.getElementById(id);

// --- The part with call sites

function matches(row) {
  const texts = [row.kind, row.class, row.api, row.owner, row.object];
  return texts.some(text => text?.toLowerCase().includes(state.pattern)) ||
         stackOf(row, data).some(frame => frame.text.includes(state.pattern));
}
function inTime(row) {
  return !state.time || row.first_s === undefined || (row.first_s <= state.time[1] && row.last_s >= state.time[0]);
}

function showSites() {
  const of_kind = state.view.rows(scope).filter(row => (!state.kind || row.kind === state.kind) && inTime(row));
  const rows = rowsOnce(scope, of_kind);
  flame.pattern = state.pattern;
  flame.show(flameTree(rows, state.view, data), state.view);
  table.show(rows.filter(matches), state.view);
  byId('view_note').textContent = state.view.note;
  showChoices();
}

function showChoices() {
  const button = (text, is_chosen, change, attributes) => make('button', {
    type: 'button', 'aria-pressed': String(is_chosen), ...attributes,
    onclick: () => { Object.assign(state, change); showSites(); }}, text);
  const views = page.views.filter(view => !view.optional || view.rows(scope).length);
  byId('views').replaceChildren(...views.map(view =>
    button(view.id === 'moment' ? momentName(scope.moments[state.moment]) : view.title, view === state.view,
           {view, kind: undefined}, {'data-view': view.id})));
  const kinds = [...new Set(state.view.rows(scope).map(row => row.kind))];
  kinds.sort((a, b) => (a === 'host') - (b === 'host') || (a < b ? -1 : 1));
  byId('kind_filter').replaceChildren(...kinds.length < 2 ? [] : [undefined, ...kinds].map(kind =>
    button(kind ? [swatch(kind), kind] : 'all kinds', kind === state.kind, {kind}, {'data-kind-filter': kind})));
  byId('legend').replaceChildren(...[state.view.legend?.()].filter(Boolean));
  byId('time_filter').replaceChildren(...!state.time ? [] : [make('button', {
    type: 'button', class: 'chosen', onclick: () => timeline.set(undefined)},
    `allocated ${seconds(state.time[0])} to ${seconds(state.time[1])} \u2715`)]);
}

// What a stranger should see first: leaks, of the GPU where it was used; without leaks what the memory was for.
function firstView() {
  const view = id => kViews.find(of => of.id === id), gpu = gpuLeaks(scope);
  if ((usedGpu(scope) ? gpu : scope.leaks).some(isLost)) return view('lost');
  return gpu.length || !scope.at_peak.length ? view('live') : view('peak');
}

// Another moment keeps the kind and the words that are searched for.
function chooseMoment(moment) {
  state.moment = moment;
  if (moment !== undefined) state.view = kViews.find(view => view.id === 'moment');
  else if (state.view.id === 'moment') state.view = page.firstView();
  showSites();
}

function openSite(row) {
  const is_same = other => ['kind', 'class', 'frames', 'api', 'object'].every(name => other[name] === row[name]);
  const view = [page.firstView(), ...page.views].find(of => of.rows(scope).some(is_same));
  Object.assign(state, {view, kind: undefined, pattern: ''});
  byId('search').value = '';
  timeline.set(undefined);
  table.open(table.rows.find(is_same));
}

// --- The whole page, which is of the reports of one run, or else of two runs (changePage)

const reportPage = {
  views: kViews, without: [], firstView,
  command: () => scope.single ? scope.single.cistern.command ?? ''
                              : counted(scope.reports.length, 'process', 'processes'),
  scopes: () => data.reports.map(processName),
  scope: chosen => scopeOf(chosen === 'all' ? data.reports : [data.reports[Number(chosen)]]),
  show() {
    showVerdict(scope, data, openSite, report => showScope(String(data.reports.indexOf(report))));
    showKinds(scope);
    showPools(scope);
    showCopies(scope, data);
    showNotes(scope, data);
  },
};

function showScope(chosen) {
  scope = page.scope(chosen);
  Object.assign(state, {view: page.firstView(), kind: undefined, time: undefined, moment: undefined});
  byId('scope').value = chosen;
  byId('command').textContent = page.command();
  timeline.show(scope);
  page.show();
  showSites();
}

// What is drawn has the theme's colours in it.
function redraw() {
  byId('theme').textContent = theme.dark ? 'light' : 'dark';
  timeline.draw();
  page.show();
  flame.draw();
  table.draw();
  showChoices();
}

function setTheme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  redraw();
}

function listen() {
  byId('scope').addEventListener('change', event => showScope(event.target.value));
  byId('search').addEventListener('input', event => {
    state.pattern = event.target.value.trim().toLowerCase();
    showSites();
  });
  document.addEventListener('keydown', event => {
    if (event.key === '/' && event.target.tagName !== 'INPUT') byId('search').focus(), event.preventDefault();
    if (event.key !== 'Escape') return;
    byId('search').value = state.pattern = '';
    document.activeElement.blur();
    timeline.set(undefined);
  });
  addEventListener('resize', () => { timeline.draw(); flame.draw(); });
  byId('theme').addEventListener('click', () => setTheme(theme.dark ? 'light' : 'dark'));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  let before_print;
  addEventListener('beforeprint', () => {
    before_print = document.documentElement.dataset.theme;
    setTheme('light');  // paper is white
  });
  addEventListener('afterprint', () => setTheme(before_print));
}

function fail(error) {
  byId('failure').hidden = false;
  byId('failure').textContent =
    `This page could not be shown: ${error?.message ?? error}. It needs a browser of 2023 or newer.`;
}

async function start() {
  data = await unpacked(byId('data').textContent.trim());
  page = data.reports ? reportPage : changePage;
  for (const id of page.without) byId(id).hidden = true;
  document.querySelector('main').hidden = false;
  timeline = new Timeline(section('time'), byId('time_help'), range => { state.time = range; showSites(); },
                          chooseMoment);
  flame = new FlameGraph(byId('flame'), byId('flame_status'), byId('path'));
  table = new SiteTable(byId('table'), data);
  const processes = page.scopes().map((name, i) => make('option', {value: i}, name));
  const all = make('option', {value: 'all'}, `all ${processes.length} processes together`);
  byId('scope').hidden = processes.length < 2;
  byId('scope').replaceChildren(...processes.length < 2 ? [] : [all], ...processes);
  byId('theme').textContent = theme.dark ? 'light' : 'dark';
  listen();
  showScope(processes.length < 2 ? '0' : 'all');
  document.documentElement.dataset.ready = 'yes';
}

addEventListener('error', event => fail(event.error ?? event.message));
addEventListener('unhandledrejection', event => fail(event.reason));
start();

// The table of call sites: sorted by any column, the largest first; a row opens to its stack.

// The frame that names a site: that of its owner; or else the first of a script, or of the program; or the innermost.
function siteFrame(row, data) {
  const stack = stackOf(row, data), program = stack.at(-1)?.module;
  const is_owner = frame => frame.place === row.owner || (frame.module && fileName(frame.module) === row.owner);
  const is_script = frame => frame.python && !/\/(lib|site-packages|dist-packages)\/|^</.test(frame.file ?? '<');
  return (row.owner && stack.find(is_owner)) || stack.find(is_script) ||
         stack.find(frame => frame.function && frame.module === program) ||
         stack.find(frame => frame.function) || stack[0];
}

function siteName(row, data) {
  const frame = siteFrame(row, data);
  if (!frame && row.list === 'moments') return make('i', {}, 'all other sites');
  if (!frame && row.list) return make('i', {}, `${counted(row.rows, 'other site')}, left out of this page`);
  if (!frame) return make('i', {}, 'no call site');
  const place = make('span', {class: 'faint mono'}, ` ${frame.place}`);
  return [make('b', {class: 'mono'}, shortened(frame.name)), frame.name === frame.place ? [] : place,
          row.api ? make('span', {class: 'tag'}, row.api) : []];
}

const kindTag = kind => make('span', {class: 'kind', 'data-kind': kind}, swatch(kind), kind);
function swatch(kind) {
  const square = make('i', {class: 'swatch', 'data-swatch': kind});
  square.style.background = kindColor(kind);
  return square;
}
function classTag(name) {
  const level = kLost.includes(name) ? 'bad' : name === 'possibly lost' ? 'warn' : '';
  return make('span', {class: `class ${level}`}, kClasses.get(name) ?? name);
}

function stackList(stack) {
  return make('ol', {class: 'stack mono'}, stack.map(frame => make('li', {}, make('b', {}, frame.function ?? '?'), '  ',
    make('span', {class: 'faint'}, longPlace(frame), frame.inlined ? '  (inlined)' : ''))));
}

function siteFacts(row) {
  const references = row.retained || row.released
    ? `created ${row.created}, retained ${row.retained}, released ${row.released}` : '';
  const kept = row.kept_parent_bytes ? `keeps its released parent alive: ${bytes(row.kept_parent_bytes)}` : '';
  return [row.object, row.api, row.owner ? `by ${row.owner}` : '', row.suppressed ? 'suppressed' : '',
          row.inherited ? 'from before the fork' : '',
          row.last_s !== undefined && !row.list ? `last allocated at ${seconds(row.last_s)}` : '',
          references, kept, row.trend, row.bytes_per_s ? `${bytes(Math.round(row.bytes_per_s))}/s` : '',
          row.since_s ? `since ${seconds(row.since_s)}` : ''];
}

class SiteTable {
  constructor(place, data) {
    Object.assign(this, {place, data, sorted_by: undefined, descending: true});
  }

  // Columns of what a view's rows have.
  columns() {
    const view = this.view;
    if (view.columns) return view.columns(this);
    const blocks = row => figure('site.blocks', view.blocks(row), grouped(view.blocks(row)));
    const first = row => row.list ? '' : figure('site.first_s', row.first_s, seconds(row.first_s));
    return [
      {title: view.counts ? 'allocations' : 'bytes', class: 'number', key: view.weight, cell: row => this.amount(row)},
      view.blocks && {title: view.counts ? 'freed at once' : 'blocks', class: 'number optional', key: view.blocks,
                      cell: blocks},
      view.classes && {title: 'class', key: row => -severity(row), cell: row => classTag(row.class)},
      this.kindColumn(), this.siteColumn(),
      view.classes && {title: 'first seen', class: 'number optional', smallest_first: true, key: row => row.first_s,
                       cell: first}].filter(Boolean);
  }
  kindColumn() {
    return {title: 'kind', smallest_first: true, key: row => row.kind, cell: row => kindTag(row.kind)};
  }
  siteColumn() {
    return {title: 'call site', class: 'where', smallest_first: true,
            key: row => siteFrame(row, this.data)?.name ?? '', cell: row => siteName(row, this.data)};
  }
  amount(row) {
    const value = this.view.weight(row), bar = make('i', {class: 'bar'});
    bar.style.width = `${100 * value / this.most}%`;
    bar.style.background = kindColor(row.kind);
    const error = row.bytes_error ? ` \u00b1 ${bytes(row.bytes_error)}` : '';
    const about = scope.estimated.has(`${this.view.list}.${row.kind}`) ? 'about ' : '';
    return [bar, figure('site.bytes', value, about + this.view.show(value) + error)];
  }

  show(rows, view) {
    if (view !== this.view) this.sorted_by = undefined, this.descending = true;
    this.rows = rows, this.view = view, this.shown = 50;
    this.most = Math.max(greatest(rows, view.weight), 1);
    this.draw();
  }

  draw() {
    const columns = this.columns(), sorted = columns[this.sorted_by ?? 0];
    const order = this.descending ? -1 : 1;
    const compare = (one, other) => one < other ? -order : one > other ? order : 0;
    this.rows.sort((a, b) => compare(sorted.key(a), sorted.key(b)) || this.view.weight(b) - this.view.weight(a));
    const head = columns.map((of, i) => make('th', {class: of.class,
      'aria-sort': of === sorted ? this.descending ? 'descending' : 'ascending' : undefined},
      make('button', {type: 'button', onclick: () => this.sort(i), 'aria-label': of.label}, of.title)));
    const more = this.rows.length - this.shown;
    this.body = make('tbody', {}, this.rows.slice(0, this.shown).map(row => this.line(row, columns)));
    this.place.replaceChildren(
      make('table', {class: 'sites'}, make('thead', {}, make('tr', {}, head)), this.body),
      this.rows.length ? '' : make('p', {class: 'note'}, 'No call site matches.'),
      more > 0 ? make('button', {type: 'button', class: 'more', onclick: () => { this.shown += 200; this.draw(); }},
                      `${grouped(more)} more`) : '');
  }
  line(row, columns) {
    const line = make('tr', {
      tabindex: 0, 'aria-expanded': 'false', onclick: () => this.toggle(line, row, columns.length),
      onkeydown: event => this.key(event, line, row, columns.length)},
      columns.map(of => make('td', {class: of.class}, of.cell(row))));
    return line;
  }

  sort(column) {
    const same = column === (this.sorted_by ?? 0);
    this.descending = same ? !this.descending : !this.columns()[column].smallest_first;
    this.sorted_by = column;
    this.draw();
  }
  open(row) {
    const at = this.rows.indexOf(row);
    if (at < 0) return;
    if (at >= this.shown) this.shown = at + 1, this.draw();
    const line = this.body.querySelectorAll('tr[tabindex]')[at];
    if (line.getAttribute('aria-expanded') === 'false') this.toggle(line, row, this.columns().length);
    line.scrollIntoView({block: 'center'});
    line.focus({preventScroll: true});
  }
  toggle(line, row, columns) {
    const open = line.getAttribute('aria-expanded') === 'false';
    line.setAttribute('aria-expanded', open);
    if (!open) return line.nextElementSibling.remove();
    const stack = stackList(stackOf(row, this.data));
    const facts = make('p', {class: 'facts'}, this.view.facts(row).filter(Boolean).join(' \u00b7 '));
    line.after(make('tr', {class: 'opened'}, make('td', {colspan: columns}, facts, stack)));
  }
  key(event, line, row, columns) {
    const step = direction => {
      let to = line[direction];
      while (to && !to.hasAttribute('tabindex')) to = to[direction];
      to?.focus();
    };
    if (event.key === 'Enter') this.toggle(line, row, columns);
    else if (event.key === 'ArrowDown') step('nextElementSibling');
    else if (event.key === 'ArrowUp') step('previousElementSibling');
    else return;
    event.preventDefault();
  }
}

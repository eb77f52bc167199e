// Numbers in words, as the text report has them, and elements. All text of the data comes into the page as text nodes.

const grouped = count => String(Math.round(count)).replace(/\B(?=(\d{3})+$)/g, ',');
const counted = (count, noun, nouns = `${noun}s`) => `${grouped(count)} ${count === 1 ? noun : nouns}`;
const decimal = (value, digits) => (Math.floor(value * 10 ** digits + 0.5) / 10 ** digits).toFixed(digits);
const percent = share => `${decimal(share * 100, 1)} %`;
const seconds = value => `${decimal(value, 2)} s`;
const duration = value => value < 1 ? `${decimal(value * 1000, 2)} ms` : seconds(value);
const rate = perSecond => `${decimal(perSecond / 2 ** 30, 2)} GiB/s`;

function bytes(value) {
  if (value < 1024) return `${value} B`;
  const units = ['KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  for (value /= 1024; value >= 1023.95 && unit < units.length - 1; value /= 1024) ++unit;
  return `${decimal(value, 1)} ${units[unit]}`;
}

const fileName = path => path.slice(path.lastIndexOf('/') + 1);
const hex = number => `0x${number.toString(16)}`;
const shortened = text => text.length > 140 ? `${text.slice(0, 100)} \u2026 ${text.slice(-30)}` : text;
// [['a', 3], ['b', 4]] as "a 3, b 4".
const listed = reasons => Object.entries(reasons ?? {}).map(([why, count]) => `${why} ${grouped(count)}`).join(', ');
const greatest = (rows, value) => rows.reduce((most, row) => Math.max(most, value(row)), 0);
const sumOf = (rows, value) => rows.reduce((sum, row) => sum + value(row), 0);

// make('td', {class: 'number', onclick: f}, 'text', element, [more], ...)
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(3).filter(child => child !== undefined));
  return element;
}

// A figure as it is shown, with its exact value and its place in the report.
function figure(place, value, text) {
  return make('span', {class: 'figure', 'data-figure': place, 'data-value': value}, text);
}
const bytesFigure = (place, value) => figure(place, value, bytes(value));

// A column of figures: `place` and `value` of a row. What is not known is a dash.
function figureColumn(title, place, value, show = grouped) {
  const cell = row => value(row) === undefined ? '-' : figure(place(row), value(row), show(value(row)));
  return {title, class: 'number', cell};
}

// A table of columns [{title, class, cell: row => content}].
function tableOf(columns, rows) {
  const head = make('tr', {}, columns.map(of => make('th', {class: of.class}, of.title)));
  const lines = rows.map(row => make('tr', {}, columns.map(of => make('td', {class: of.class}, of.cell(row)))));
  return make('div', {class: 'scroll'}, make('table', {}, make('thead', {}, head), make('tbody', {}, lines)));
}

// A bar of parts [{name, value, title, color, class}] that are shares of `whole`.
function barOf(place, whole, parts) {
  return make('div', {class: 'share'}, parts.filter(part => part.value > 0).map(part => {
    const piece = make('span', {class: part.class, title: `${part.title} ${bytes(part.value)}`,
                                'data-figure': `${place}.${part.name}`, 'data-value': part.value});
    piece.style.width = `${100 * part.value / whole}%`;
    if (part.color) piece.style.background = part.color;
    return piece;
  }));
}

const section = id => document.querySelector(`#${id} .body`) ?? document.getElementById(id);
const note = text => make('p', {class: 'note'}, text);
const list = lines => make('ul', {}, lines.map(line => make('li', {}, line)));

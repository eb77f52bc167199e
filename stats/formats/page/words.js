// Numbers in words, as the text report has them, and elements. All text of the data comes into the page as text nodes.

const grouped = count => String(Math.round(count)).replace(/\B(?=(\d{3})+$)/g, ',');
const counted = (count, noun) => `${grouped(count)} ${noun}${count === 1 ? '' : 's'}`;
const decimal = (value, digits) => (Math.floor(value * 10 ** digits + 0.5) / 10 ** digits).toFixed(digits);
const percent = share => `${decimal(share * 100, 1)} %`;
const seconds = value => `${decimal(value, 2)} s`;
const duration = value => value < 1 ? `${decimal(value * 1000, 2)} ms` : seconds(value);
const rate = perSecond => perSecond ? `${decimal(perSecond / 2 ** 30, 2)} GiB/s` : '-';

function bytes(value) {
  if (value < 1024) return `${value} B`;
  const units = ['KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  for (value /= 1024; value >= 1023.95 && unit < units.length - 1; value /= 1024) ++unit;
  return `${decimal(value, 1)} ${units[unit]}`;
}

// make('td', {class: 'number', onclick: f}, 'text', element, ...)
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter(child => child !== undefined && child !== null && child !== ''));
  return element;
}

// A figure as it is shown, with its exact value and its place in the report.
function figure(place, value, text, attributes) {
  return make('span', {...attributes, class: `figure ${attributes?.class ?? ''}`, 'data-figure': place,
                       'data-value': value}, text);
}
const bytesFigure = (place, value, attributes) => figure(place, value, bytes(value), attributes);

// A table of columns [{title, class, cell: row => content}].
function tableOf(columns, rows, attributes) {
  return make('table', attributes,
    make('thead', {}, make('tr', {}, columns.map(of => make('th', {class: of.class}, of.title)))),
    make('tbody', {}, rows.map(row => make('tr', {}, columns.map(of => make('td', {class: of.class}, of.cell(row)))))));
}

const fileName = path => path.slice(path.lastIndexOf('/') + 1);
const hex = number => `0x${number.toString(16)}`;

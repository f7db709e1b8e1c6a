// Times, ages and names as people read them.

const MINUTE = 60, HOUR = 3600, DAY = 86400;

export function seconds(from, to = Date.now()) {
  return Math.max(0, Math.floor((to - new Date(from).getTime()) / 1000));
}

// As kubectl writes ages.
export function age(span) {
  if (span < 2 * MINUTE) return `${span}s`;
  if (span < 10 * MINUTE) return `${Math.floor(span / MINUTE)}m${span % MINUTE ? `${span % MINUTE}s` : ''}`;
  if (span < 3 * HOUR) return `${Math.floor(span / MINUTE)}m`;
  if (span < 8 * HOUR) {
    const minutes = Math.floor((span % HOUR) / MINUTE);
    return `${Math.floor(span / HOUR)}h${minutes ? `${minutes}m` : ''}`;
  }
  if (span < 2 * DAY) return `${Math.floor(span / HOUR)}h`;
  return `${Math.floor(span / DAY)}d`;
}

// A date and a time with their zone.
export function whole(moment) {
  return new Date(moment).toLocaleString(undefined, {
    year: 'numeric', month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit', timeZoneName: 'short',
  });
}

export function who(entry) {
  if (!entry.name) return `queue ${entry.queue || '?'}`;
  const name = `${entry.namespace}/${entry.name}`;
  return entry.kind === 'group' ? `group ${name}` : name;
}

export function counted(number, noun) {
  return `${number.toLocaleString('en')} ${noun}${number === 1 ? '' : 's'}`;
}

// `NoLowerPriorityPods` as words.
export function spaced(reason) {
  const words = reason.replace(/([a-z0-9])([A-Z])/g, '$1 $2').replaceAll('-', ' ').toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

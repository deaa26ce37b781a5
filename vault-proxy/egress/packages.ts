// What `allow_package_managers` opens: the public registries of the package managers that an environment can name, and what they send their clients on to.

export const PACKAGE_HOSTS: readonly string[] = [
  // apt
  "deb.debian.org",
  "security.debian.org",
  "archive.ubuntu.com",
  "security.ubuntu.com",
  "ports.ubuntu.com",
  // cargo
  "crates.io",
  "index.crates.io",
  "static.crates.io",
  // gem
  "rubygems.org",
  "index.rubygems.org",
  // go
  "proxy.golang.org",
  "sum.golang.org",
  // npm, yarn
  "registry.npmjs.org",
  "registry.yarnpkg.com",
  // pip
  "pypi.org",
  "files.pythonhosted.org",
];

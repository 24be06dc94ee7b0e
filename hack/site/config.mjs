// A site of the documents as they are, built by hack/site/build.sh. Links between documents that lead nowhere fail the
// build. All other links, to manifests and code, go to the repository.
import { posix } from 'node:path'
import { defineConfig } from 'vitepress'

const repository = 'https://github.com/localservice-dev/local-service-controller'

// toRepository is a plugin of markdown-it.
const toRepository = (md) => md.core.ruler.push('to-repository', ({ tokens, env }) => {
  for (const token of tokens.flatMap((t) => t.children ?? [])) {
    const link = token.type === 'link_open' && token.attrGet('href')
    if (link && !/^([a-z]+:|#)/.test(link) && !/\.md(#.*)?$/.test(link)) {
      token.attrSet('href', `${repository}/blob/main/${posix.join(posix.dirname(env.relativePath), link)}`)
    }
  }
})

const pages = (text, ...items) => ({ text, items: items.map(([text, link]) => ({ text, link })) })

export default defineConfig({
  title: 'local-service-controller',
  description: 'A DNS name for every node, inside every app that asks for it',
  outDir: '../site',
  rewrites: (page) => page.replace(/README\.md$/, 'index.md'),
  markdown: {
    config: toRepository,
    // Anchors as forges make them, which hack/verify-docs.sh checks.
    anchor: { slugify: (s) => s.trim().toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').replace(/ /g, '-') },
  },
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    socialLinks: [{ icon: 'github', link: repository }],
    sidebar: [
      pages('Use it', ['What it is', '/'], ['Walk-through', '/docs/walk-through'], ['Recipes', '/docs/recipes'],
        ['The kubectl plugin', '/docs/plugin'], ['Look at it', '/docs/view'], ['Migration', '/docs/migration']),
      pages('Run it', ['Install, upgrade, uninstall', '/docs/install'], ['Operations', '/docs/operations'],
        ['Watch it', '/docs/metrics'], ['Security', '/docs/security'], ['Compatibility', '/docs/compatibility'], ['Changelog', '/CHANGELOG']),
      pages('Look it up', ['Behaviour', '/docs/reference/behaviour'], ['API', '/docs/reference/api'],
        ['Flags', '/docs/reference/flags'], ['Metrics', '/docs/reference/metrics'], ['All documents', '/docs/']),
      pages('Change it', ['Design', '/docs/design'], ['When things go wrong', '/docs/reliability'],
        ['Contributing', '/CONTRIBUTING']),
    ],
  },
})

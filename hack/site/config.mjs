// A site of the documents as they are, built by hack/site/build.sh. Links between documents that lead nowhere fail the
// build. All other links, to manifests and code, go to the repository.
import { readFileSync } from 'node:fs'
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

// verbatim keeps Vue from evaluating {{ }} in inline code.
const verbatim = (md) => {
  const render = md.renderer.rules.code_inline
  md.renderer.rules.code_inline = (...args) => render(...args).replace(/^<code/, '<code v-pre')
}

// The sidebar is the list of documents in README.md.
const [, documents] = readFileSync('README.md', 'utf8').split(/^## Documentation$/m)
const sidebar = [...documents.matchAll(/\[([^\]]+)\]\(([^)]+)\.md\)/g)].map(([, text, path]) => ({
  text: text[0].toUpperCase() + text.slice(1),
  link: posix.join('/', path).replace(/README$/, ''),
}))

export default defineConfig({
  title: 'local-service-controller',
  description: 'A DNS name for every node, inside every app that asks for it',
  outDir: '../site',
  rewrites: (page) => page.replace(/README\.md$/, 'index.md'),
  markdown: {
    config: (md) => [toRepository, verbatim].forEach((use) => use(md)),
    // Anchors as forges make them, which hack/verify-prose.sh checks.
    anchor: { slugify: (s) => s.trim().toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').replace(/ /g, '-') },
  },
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    socialLinks: [{ icon: 'github', link: repository }],
    sidebar,
  },
})

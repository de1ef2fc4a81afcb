#include <algorithm>
#include <array>
#include <string_view>

#include "apps/command_pages.h"
#include "base/plain/error.h"
#include "base/plain/text.h"

namespace evenkeel::apps {
namespace {

/// Quotes text with single quotes, for a POSIX shell or for fish.
std::string single_quoted(std::string_view text, std::string_view quote) {
  std::string word = "'";
  for (const char c : text) c == '\'' ? word.append(quote) : word.append(1, c == '\n' ? ' ' : c);
  return word + "'";
}

std::string names_joined(const std::vector<FlagPage>& flags) {
  std::string words;
  for (const auto& flag : flags)
    for (const auto& name : flag.names) words += (words.empty() ? "" : " ") + name;
  return words;
}

std::string command_words(const std::vector<CommandPage>& pages, std::string_view separator) {
  std::string words;
  for (const auto& page : pages) words.append(words.empty() ? "" : separator).append(page.name);
  return words;
}

std::string bash_script(const CommandPage& program, const std::vector<CommandPage>& pages) {
  std::string script =
      "# Completes evenkeel in bash; written by `evenkeel completion bash`. Where no flag fits, files are completed.\n"
      "_evenkeel() {\n  local word=${COMP_WORDS[COMP_CWORD]} command='' words='' i\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n    case ${COMP_WORDS[i]} in\n      " +
      command_words(pages, "|") + ") command=${COMP_WORDS[i]}; break ;;\n    esac\n  done\n  case $command in\n" +
      "    '') words='" + command_words(pages, " ") + " " + names_joined(program.flags) + "' ;;\n";
  for (const auto& page : pages) script += "    " + page.name + ") words='" + names_joined(page.flags) + "' ;;\n";
  return script +
         "  esac\n  COMPREPLY=()\n  [[ -n $command && $word != -* ]] && return\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n}\ncomplete -o default -F _evenkeel "
         "evenkeel\n";
}

/// Escapes a description for the brackets of zsh's _arguments.
std::string zsh_text(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string_view("[]:\\").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string zsh_flags(const CommandPage& page) {
  std::string words;
  for (const auto& flag : page.flags)
    for (const auto& name : flag.names)
      words += " \\\n        " + single_quoted("*" + name + "[" + zsh_text(flag.text) + "]" +
                                                   (flag.value.empty() ? "" : ":" + zsh_text(flag.value) + ":_files"),
                                               "'\\''");
  return words;
}

std::string zsh_script(const CommandPage& program, const std::vector<CommandPage>& pages) {
  std::string script =
      "#compdef evenkeel\n# Completes evenkeel in zsh; written by `evenkeel completion zsh`.\n"
      "_evenkeel() {\n  local curcontext=$curcontext state line\n  local -a commands\n  commands=(\n";
  for (const auto& page : pages)
    script += "    " + single_quoted(page.name + ":" + zsh_text(page.summary), "'\\''") + "\n";
  script += "  )\n  _arguments -C" + zsh_flags(program) +
            " \\\n        '1:command:->command' '*::argument:->rest'\n  case $state in\n"
            "    command) _describe command commands ;;\n    rest) case $line[1] in\n";
  for (const auto& page : pages)
    script += "      " + page.name + ") _arguments" + zsh_flags(page) + " \\\n        '*:file:_files' ;;\n";
  return script + "    esac ;;\n  esac\n}\n_evenkeel \"$@\"\n";
}

std::string fish_flag(const FlagPage& flag, const std::string& when) {
  std::string line = "complete -c evenkeel -n " + when;
  for (const auto& name : flag.names)
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  return line + (flag.value.empty() ? "" : " -r") + " -d " + single_quoted(flag.text, "\\'") + "\n";
}

std::string fish_script(const CommandPage& program, const std::vector<CommandPage>& pages) {
  std::string script = "# Completes evenkeel in fish; written by `evenkeel completion fish`.\n";
  for (const auto& flag : program.flags) script += fish_flag(flag, "__fish_use_subcommand");
  for (const auto& page : pages) {
    script += "complete -c evenkeel -f -n __fish_use_subcommand -a " + page.name + " -d " +
              single_quoted(page.summary, "\\'") + "\n";
    for (const auto& flag : page.flags) script += fish_flag(flag, "'__fish_seen_subcommand_from " + page.name + "'");
  }
  return script;
}

struct Shell {
  std::string_view name;
  std::string (*script)(const CommandPage& program, const std::vector<CommandPage>& pages);
};
constexpr std::array kShells{Shell{"bash", bash_script}, Shell{"zsh", zsh_script}, Shell{"fish", fish_script}};

}  // namespace

std::vector<std::string> completion_shells() {
  std::vector<std::string> names;
  for (const auto& shell : kShells) names.emplace_back(shell.name);
  return names;
}

std::string completion_script(const CLI::App& program, const std::string& shell) {
  const auto* found = std::find_if(kShells.begin(), kShells.end(), [&](const Shell& s) { return s.name == shell; });
  EK_CHECK(found != kShells.end(), kConfig, "completion: \"", shown(shell),
           "\" is unknown, allowed: ", join(completion_shells()));
  return found->script(program_page(program), command_pages(program));
}

}  // namespace evenkeel::apps

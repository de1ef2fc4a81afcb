#include <string_view>

#include "apps/command_pages.h"
#include "base/plain/text.h"

namespace evenkeel::apps {
namespace {

/// Escapes a text for roff.
std::string roff(std::string_view text) {
  std::string line;
  for (const char c : text) {
    if (line.empty() && (c == '.' || c == '\'')) line += "\\&";
    if (c == '\\')
      line += "\\e";
    else if (c == '-')
      line += "\\-";
    else
      line += c;
  }
  return line;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string without_indent(std::string_view line) {
  const auto first = line.find_first_not_of(' ');
  return std::string(first == line.npos ? "" : line.substr(first));
}

/// Formats paragraphs and keeps their line breaks, because they contain examples and lists.
std::string roff_paragraphs(std::string_view text) {
  std::string page = ".PP\n";
  for (const auto line : split_lines(text)) page += line.empty() ? ".PP\n" : roff(without_indent(line)) + "\n.br\n";
  return page;
}

std::string roff_flag(const FlagPage& flag) {
  std::string names;
  for (const auto& name : flag.names) names += (names.empty() ? "" : ", ") + roff(name);
  return ".TP\n\\fB" + names + "\\fR" + (flag.value.empty() ? "" : " \\fI" + flag.value + "\\fR") +
         (flag.repeated ? " ..." : "") + "\n" + roff(flag.text) + "\n";
}

std::string roff_flags(const CommandPage& page) {
  std::string text;
  for (const auto& argument : page.arguments) text += roff_flag(argument);
  for (const auto& flag : page.flags) text += roff_flag(flag);
  return text;
}

std::string roff_command(const CommandPage& page) {
  return ".SS " + page.name + "\n" + roff(page.summary) + "\n" + (page.text.empty() ? "" : roff_paragraphs(page.text)) +
         roff_flags(page);
}

constexpr std::string_view kEnding = R"(.SH ENVIRONMENT
.TP
.B EVENKEEL_DATA
folder with the published data sets; "$EVENKEEL_DATA/" begins paths in configs
.TP
.B EVENKEEL_TORCH
read by the command that the Python package installs: the folder of an installed torch, or auto; its LibTorch is used
instead of the package's
.TP
.B XDG_CACHE_HOME
its sub-folder evenkeel stores the fingerprints of large files; default ~/.cache
.SH EXIT STATUS
.TP
.B 0
done
.TP
.B 1
the input is wrong, or output cannot be written; one line on standard error says who, what arrived and what is allowed
.TP
.B 2
an internal error
.TP
.B 130
interrupted, with the state saved; the line on standard error is the command that goes on
)";

}  // namespace

std::string manual_page(const CLI::App& program, const std::string& version) {
  const auto page = program_page(program);
  std::string text = ".\\\" Written by `evenkeel man`.\n.TH EVENKEEL 1 \"\" \"evenkeel " + roff(version) +
                     "\" \"User Commands\"\n.SH NAME\nevenkeel \\- " + roff(page.summary) +
                     "\n.SH SYNOPSIS\n.B evenkeel\n.I COMMAND\n[\\fIOPTIONS\\fR]\n.SH OPTIONS\n" + roff_flags(page) +
                     ".SH COMMANDS\n";
  for (const auto& command : command_pages(program)) text += roff_command(command);
  return text.append(kEnding);
}

}  // namespace evenkeel::apps

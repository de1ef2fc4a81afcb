#include "apps/path_flags.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/plain/data_path.h"
#include "base/plain/error.h"

namespace evenkeel::apps {
namespace {

/// Options that take a path, of all commands, without the leading dashes.
constexpr auto kPaths = std::to_array<std::string_view>(
    {"CONFIG",        "STUDY",          "RUN",   "FOLDER",      "FILE",  "adapter",       "adapters", "agreed",
     "allow",         "base",           "ca",    "certificate", "data",  "bert-baseline", "baseline", "bert-encoder",
     "chat-template", "client-profile", "fab",   "grid",        "html",  "input",         "journal",  "key",
     "logits",        "memory",         "model", "out",         "peers", "predictions",   "run",      "socket",
     "test",          "with",           "config"});

bool takes_path(const CLI::Option& option) {
  return std::any_of(kPaths.begin(), kPaths.end(), [&](std::string_view name) {
    return option.check_lname(std::string(name)) || option.get_name(true) == name;
  });
}

/// Returns the path of an option. An empty --out would stand for the default folder.
std::string path_of(const std::string& given, const std::string& name) {
  EK_CHECK(!given.empty() || name != "--out", kConfig, "--out is empty, allowed: the path of a folder");
  return expand_home(given, name);
}

}  // namespace

void expand_home_in_paths(CLI::App& program) {
  for (auto* option : program.get_options())
    if (takes_path(*option))
      option->transform([name = option->get_name()](std::string path) { return path_of(path, name); });
  for (auto* command : program.get_subcommands([](const CLI::App*) { return true; })) expand_home_in_paths(*command);
}

}  // namespace evenkeel::apps

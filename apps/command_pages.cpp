#include "apps/command_pages.h"

#include <algorithm>

namespace evenkeel::apps {
namespace {

std::vector<std::string> dashed_names(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const auto& name : option.get_lnames()) names.push_back("--" + name);
  for (const auto& name : option.get_snames()) names.push_back("-" + name);
  return names;
}

FlagPage flag_page(const CLI::Option& option) {
  FlagPage page{.text = option.get_description(), .required = option.get_required()};
  page.names = dashed_names(option);
  if (page.names.empty()) page.names.push_back(option.get_name(true));
  if (option.get_items_expected_max() > 0) page.value = option.get_type_name();
  page.repeated = option.get_items_expected_max() > 1;
  return page;
}

CommandPage command_page(const CLI::App& command) {
  CommandPage page{.name = command.get_name(), .summary = command.get_description(), .text = command.get_footer()};
  for (const auto* option : command.get_options()) {
    const bool positional = option->get_positional() && !option->nonpositional();
    (positional ? page.arguments : page.flags).push_back(flag_page(*option));
  }
  return page;
}

}  // namespace

CommandPage program_page(const CLI::App& program) {
  auto page = command_page(program);
  page.name = "evenkeel";
  return page;
}

std::vector<CommandPage> command_pages(const CLI::App& program) {
  std::vector<CommandPage> pages;
  for (const auto* command : program.get_subcommands([](const CLI::App* app) { return !app->get_name().empty(); }))
    pages.push_back(command_page(*command));
  return pages;
}

}  // namespace evenkeel::apps

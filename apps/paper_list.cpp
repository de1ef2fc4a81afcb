#include "apps/paper_list.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <vector>

#include "base/plain/error.h"
#include "base/plain/number_text.h"
#include "report/table.h"
#include "study/running/forecast.h"

namespace evenkeel::apps {
namespace {

constexpr std::string_view kSmall = "small/", kTitleOfTables = "table";

/// Returns the studies of a table at full size and, if `with_small`, their small counterparts.
std::vector<const study::PaperStudy*> studies_of(const study::PaperTable& table,
                                                 std::span<const study::PaperStudy> studies, bool with_small) {
  std::vector<const study::PaperStudy*> found;
  for (const auto& one : studies) {
    const bool is_small = one.name.starts_with(kSmall);
    const auto name = is_small ? one.name.substr(kSmall.size()) : one.name;
    const bool is_named = std::count(table.studies.begin(), table.studies.end(), name) > 0;
    if (is_named && (with_small || !is_small)) found.push_back(&one);
  }
  return found;
}

/// Formats a name and a text next to it, which may take several lines.
std::string entry(const std::string& name, size_t width, const std::string& text) {
  std::istringstream lines(report::wrapped(text, report::kPageWidth - width, 0));
  std::string all;
  for (std::string line; std::getline(lines, line);) {
    const auto& before = all.empty() ? name : std::string();
    all += concat(before, std::string(width - before.size(), ' '), line, '\n');
  }
  return all;
}

std::string tables_text(std::span<const study::PaperTable> tables) {
  size_t width = kTitleOfTables.size();
  const auto name_of = [](const study::PaperTable& table) { return concat("paper:", table.id); };
  for (const auto& table : tables) width = std::max(width, name_of(table).size());
  std::string text = entry(std::string(kTitleOfTables), width + 2, "what it shows [studies of configs/paper]");
  for (const auto& table : tables)
    text += entry(name_of(table), width + 2, concat(table.title, " [", join(table.studies), "]"));
  return text;
}

std::string left_text(const study::PaperStudy& one) {
  if (!one.seconds_left || one.done == one.runs) return "-";
  const auto time = study::time_text(*one.seconds_left);
  return one.by_flops ? concat(time, " by FLOPs") : concat("about ", time);
}

std::string studies_text(std::span<const study::PaperStudy> studies) {
  report::Table grid{.head = {"study", "runs", "done", "failed", "took", "the others take"}};
  for (const auto& one : studies)
    grid.add({one.name, std::to_string(one.runs), std::to_string(one.done), std::to_string(one.failed),
              one.done > 0 ? study::time_text(one.seconds_taken) : "-", left_text(one)});
  return report::text_of(grid);
}

/// Returns a line for each model or data set that is not here, with the studies that need it.
std::string other_studies_text(std::span<const study::PaperStudy> studies) {
  std::string text;
  for (const auto& one : studies)
    if (one.is_other)
      text += report::wrapped(
          concat(one.folder.string(), " holds another study than ", one.name, ": its runs are not counted here"));
  return text;
}

std::string missing_text(std::span<const study::PaperStudy> studies) {
  std::map<std::string, std::vector<std::string>> needed;
  for (const auto& one : studies)
    for (const auto& input : one.missing) needed[input].push_back(one.name);
  std::string text;
  for (const auto& [input, names] : needed) text += report::wrapped(concat("not here: ", input, ", for ", join(names)));
  return text;
}

/// Returns the speeds as a part of a sentence.
std::string speeds_text(std::span<const ProductSpeed> speeds) {
  std::vector<std::string> texts;
  for (const auto& speed : speeds) texts.push_back(concat(compact(speed.flops), "FLOP/s (", speed.how, ")"));
  return texts.empty() ? "" : concat(" at the speed of large products here, ", join(texts, " or "));
}

OrderedJson state_json(const study::PaperStudy& one) {
  return {{"study", one.name},
          {"file", one.file.string()},
          {"folder", one.folder.string()},
          {"runs", one.runs},
          {"done", one.done},
          {"failed", one.failed},
          {"is_other", one.is_other},
          {"seconds_taken", one.seconds_taken},
          {"seconds_left", one.seconds_left ? OrderedJson(*one.seconds_left) : OrderedJson()},
          {"by_flops", one.by_flops},
          {"missing", one.missing}};
}

}  // namespace

std::string paper_list_text(std::span<const study::PaperTable> tables, std::span<const study::PaperStudy> studies,
                            std::span<const ProductSpeed> speeds) {
  const auto note = concat(
      "took: time of the runs that are done, in runs/ and runs/paper-small/. The others, one at a time: about the mean "
      "of those; before the first, their FLOPs (configs/paper/work.toml)",
      speeds_text(speeds), ", no bound. `evenkeel study FILE --dry-run` measures more.");
  return concat(tables_text(tables), '\n', studies_text(studies), other_studies_text(studies), missing_text(studies),
                report::wrapped(note));
}

OrderedJson paper_table_json(const study::PaperTable& table, std::span<const study::PaperStudy> studies) {
  int64_t runs = 0, done = 0;
  for (const auto* one : studies_of(table, studies, false)) runs += one->runs, done += one->done;
  OrderedJson states = OrderedJson::array();
  for (const auto* one : studies_of(table, studies, true)) states.push_back(state_json(*one));
  return {{"table", table.id}, {"title", table.title}, {"studies", table.studies},   {"measure", table.measure},
          {"runs", runs},      {"done", done},         {"states", std::move(states)}};
}

}  // namespace evenkeel::apps

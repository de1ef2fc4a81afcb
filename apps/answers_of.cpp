#include "apps/answers_of.h"

#include <ATen/Parallel.h>

#include "base/format/fingerprint.h"
#include "base/plain/files.h"
#include "fed/store/manifest.h"

namespace evenkeel::apps {

std::string answers_of(const ModelOptions& flags, const OpenedModel& opened,
                       const scoring::EvaluationOptions& options) {
  auto files = fed::model_files(opened.folder);
  if (const auto adapter = adapter_of(flags); !adapter.empty())
    for (auto& file : entries_of(adapter))
      if (is_file(file)) files.push_back(std::move(file));
  std::string text = concat(version(), ' ', at::get_num_threads(), ' ', flags.dtype, ' ', flags.gate_norm, ' ',
                            config::name_of(options.form), ' ', config::name_of(options.decode), ' ',
                            config::name_of(options.cache), ' ', options.cache_gib, ' ', options.max_new_tokens, ' ',
                            options.batch_size, ' ', options.cutoff, ' ', options.likelihood, '\n');
  if (!opened.model->device().is_cpu()) text += "gpu\n";
  for (const auto& file : files) text += concat(file.filename().string(), ' ', fingerprint_of(file).digest, '\n');
  return concat(sha256(text).substr(0, 16), ", ");
}

std::string key_of(const data::TaskInfo& task, std::span<const data::Row> rows) {
  std::string text;
  const auto add = [&](std::string_view part) { text += concat(part.size(), ' ', part, '\n'); };
  for (const auto& row : rows) {
    for (const auto part : data::question_of(row)) add(part);
    add(row.output);
    add(row.answer);
    for (const auto& option : row.options) add(option);
  }
  return concat(task.name, ", rows ", sha256(text).substr(0, 16), ", scored by ", config::name_of(task.scoring));
}

}  // namespace evenkeel::apps

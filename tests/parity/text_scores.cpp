// Prints normalised words, exact match and F1 of pairs of texts, for test_squad_v5.py.
#include "data/text_metrics.h"

#include <ATen/ATen.h>

#include "base/format/safetensors.h"
#include "base/plain/json.h"
#include "jobs.h"

namespace evenkeel {
namespace {

void run(const fs::path& file) {
  const Json job = load_json(file);
  std::vector<double> exact, f1;
  std::string words;
  for (const auto& pair : job.at("pairs")) {
    const auto output = pair.at(0).get<std::string>(), reference = pair.at(1).get<std::string>();
    words += data::normalize_answer(output) + "\n";
    exact.push_back(data::exact_match(output, reference) ? 1 : 0);
    f1.push_back(data::token_f1(output, reference));
  }
  write_file_atomic(job.at("words").get<std::string>(), words);
  save_safetensors(job.at("out").get<std::string>(),
                   {{"exact_match", at::tensor(exact, at::kDouble)}, {"f1", at::tensor(f1, at::kDouble)}});
}

}  // namespace
}  // namespace evenkeel

int main() { return evenkeel::serve_jobs(evenkeel::run); }

/// \file  Lists the tables of the paper with the studies that fill them, and the state and cost of these.
#pragma once

#include <span>
#include <string>

#include "base/plain/json.h"
#include "study/paper/paper_studies.h"
#include "study/paper/paper_tables.h"

namespace evenkeel::apps {

/// How fast this machine multiplies for some studies, from which times are foreseen.
struct ProductSpeed {
  double flops = 0;  ///< per second
  std::string how;   ///< arithmetic, threads and device: "float32, 2 threads, cpu"
};

/// Formats the tables, then the studies, as text of at most 80 columns.
std::string paper_list_text(std::span<const study::PaperTable> tables, std::span<const study::PaperStudy> studies,
                            std::span<const ProductSpeed> speeds);

/// Returns a table as JSON, with the state and cost of its studies at full size and of their small counterparts.
OrderedJson paper_table_json(const study::PaperTable& table, std::span<const study::PaperStudy> studies);

}  // namespace evenkeel::apps

/// \file  The families of tasks that come with the program. Private to the tasks folder and its table.
#pragma once

#include "data/task_family.h"

namespace evenkeel {

TaskFamily commonsense();  ///< the eight sets of LLM-Adapters (Hu et al. 2023), read from files
TaskFamily telequad();     ///< TeleQuAD v4, read from its file
/// Ours, generated. Test rows ask every question that is kept for testing, once, in an order drawn by the seed.
TaskFamily builtin();
TaskFamily files();  ///< rows of people's own, from the files that data.files names

}  // namespace evenkeel

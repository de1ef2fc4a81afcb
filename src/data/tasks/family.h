/// \file  Declares the built-in task families. Only data/tasks.cpp and the files of this folder include it.
#pragma once

#include "data/task_family.h"

namespace evenkeel::data {

TaskFamily commonsense();  ///< the eight sets of LLM-Adapters (Hu et al. 2023), read from files
TaskFamily telequad();     ///< TeleQuAD v4, read from its file
/// Generated questions about the built-in world. The test rows contain every question that is kept for testing once, in
/// an order drawn by the seed.
TaskFamily builtin();
/// Generated questions about the large built-in world, 400 test rows per task.
TaskFamily builtin_large();
/// Facts of the large built-in world with other values than its text has.
TaskFamily builtin_changed();
TaskFamily files();  ///< rows of the user's own files, named by `[data.files]`

}  // namespace evenkeel::data

// A ticket: the small text that says which prepared file belongs to a model on this machine. rlflow/kernels/tickets.py
// writes it, and the execution provider believes it where everything that it names is still so.
#pragma once
#include <string>

namespace rlflow::kernels {

struct Ticket {
  std::string prepared;  // the path of the prepared file
  std::string key;       // what its metadata must say
};

// Reads the ticket at `path`, for the model at `model`. Throws std::invalid_argument with the reason where there is none
// or where it does not hold: for another version of the runtime or another processor, for another model or weights that
// have changed since, or where the prepared file is not what was written.
Ticket admitted(const std::string& path, const std::string& model, const std::string& runtime);

}  // namespace rlflow::kernels

"""Models: a decoder's weights and its one forward path, by form (`deepseek_v3`, `llama`), and how they are loaded."""

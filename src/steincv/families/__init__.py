"""The families of control variates: one file each, all obeying the law in `_method.Method`."""
